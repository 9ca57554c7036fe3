"""Sets the part of the client that depends on its version: the extra `server` is the server of the
same version."""

import re
from pathlib import Path

from setuptools import setup

VERSION = re.findall('__version__ = "(.+)"', Path("version.py").read_text("utf-8"))[0]

setup(
    script_name="setup.py",  # this file, which is left out of the package
    version=VERSION,
    extras_require={
        "server": [f"antiphon-server=={VERSION}"],
        "espeak": [f"antiphon-server[espeak]=={VERSION}"],
        "gpu": [f"antiphon-server[gpu]=={VERSION}"],
    },
)
