"""Adds to an SBOM what pyproject.toml leaves to setup.py: the version of the root, and the packages
of dependency groups that the root depends on.

python tools/sbom.py sbom.json GROUP ...
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def complete(bom: dict[str, Any], groups: list[str]) -> None:
    """Sets the version and the dependencies of the root of a CycloneDX document."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    names = {_package(requirement) for group in groups for requirement in listed[group]}
    version = re.findall('__version__ = "(.+)"', (ROOT / "antiphon/version.py").read_text("utf-8"))
    root = bom["metadata"]["component"]
    root["version"] = version[0]
    (node,) = [node for node in bom["dependencies"] if node["ref"] == root["bom-ref"]]
    node["dependsOn"] = sorted(
        component["bom-ref"]
        for component in bom["components"]
        if _package(component["name"]) in names
    )


def _package(requirement: str) -> str:
    """The normalised name of a requirement's package (PEP 503)."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    path = Path(sys.argv[1])
    document = json.loads(path.read_text("utf-8"))
    complete(document, sys.argv[2:])
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
