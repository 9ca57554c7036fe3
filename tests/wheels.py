"""The wheels of the client and of the server, built from a copy of the checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR

UV = Path(sys.executable).with_name("uv")


def build_wheel(distribution: str, folder: Path) -> Path:
    """Build the wheel of `antiphon` or `antiphon-server`.

    Skips the test if the index does not have what builds it.
    """
    tree = folder / "tree"  # building leaves folders in a checkout
    ignored = shutil.ignore_patterns(".*", "data", "build", "__pycache__", "*.egg-info")
    if not tree.exists():
        shutil.copytree(PROJECT_DIR, tree, ignore=ignored)
    source = tree / "antiphon" if distribution == "antiphon" else tree
    built = subprocess.run(
        [UV, "build", "--wheel", "--out-dir", folder, source], capture_output=True, text=True
    )
    if built.returncode and "build-system.requires" in built.stderr:
        pytest.skip(f"the wheel was NOT tried: {built.stderr}")
    assert not built.returncode, built.stderr
    (wheel,) = folder.glob(f"{distribution.replace('-', '_')}-*.whl")
    return wheel
