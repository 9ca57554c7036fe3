"""What the version decides of antiphon-server: it needs the client of the same version."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

VERSION = re.findall('__version__ = "(.+)"', Path("antiphon/version.py").read_text("utf-8"))[0]
GROUPS = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["dependency-groups"]

setup(
    version=VERSION,
    install_requires=[f"antiphon=={VERSION}", *GROUPS["server"]],
    extras_require={name: GROUPS[name] for name in ("espeak", "gpu")},
)
