"""Sets the version of the client, and its extras, which install the server of the same version."""

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
