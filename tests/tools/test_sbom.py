"""`tools/sbom.py` completes the root of an SBOM."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.version import __version__
from configs.settings import PROJECT_DIR


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["server"], ["PyYAML==6", "ray==2"]),
        (["server", "espeak"], ["PyYAML==6", "espeakng-loader==1", "ray==2"]),
    ],
)
def test_the_root_has_its_version_and_dependencies(
    tmp_path: Path, groups: list[str], expected: list[str]
) -> None:
    names = {"PyYAML": "6", "ray": "2", "espeakng_loader": "1", "certifi": "1"}
    refs = {name: f"{name.replace('_', '-')}=={version}" for name, version in names.items()}
    nodes = [{"ref": ref} for ref in ["root-component", *refs.values()]]
    bom = {
        "metadata": {"component": {"bom-ref": "root-component", "name": "antiphon-server"}},
        "components": [{"bom-ref": refs[name], "name": name} for name in names],
        "dependencies": nodes,
    }
    file = tmp_path / "sbom.json"
    file.write_text(json.dumps(bom))
    subprocess.run([sys.executable, PROJECT_DIR / "tools" / "sbom.py", file, *groups], check=True)
    completed = json.loads(file.read_text())
    assert completed["metadata"]["component"]["version"] == __version__
    root, *others = completed["dependencies"]
    assert root == {"ref": "root-component", "dependsOn": expected}
    assert others == nodes[1:]
