"""`tools/venv.sh` with sources of packages that hold other files of a locked version."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR


def wheel(folder: Path, version: str, content: str) -> Path:
    """Build a wheel of the package `tinypkg`, whose only module says which file this is."""
    about = f"tinypkg-{version}.dist-info"
    files = {
        "tinypkg.py": f"ORIGIN = {content!r}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: tinypkg\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        lines.append(f"{name},sha256={digest.rstrip(b'=').decode()},{len(text)}")
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,\n"])
    folder.mkdir()
    path = folder / f"tinypkg-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def index(file: Path) -> str:
    """Make the folder of the wheel a package index, and return its address."""
    page = file.parent / "tinypkg" / "index.html"
    page.parent.mkdir()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    page.write_text(f'<a href="{file.as_uri()}#sha256={digest}">{file.name}</a>')
    return file.parent.as_uri()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout that locks the wheel of the folder `locked`, and has a virtual environment."""
    locked = wheel(tmp_path / "locked", "1.0", "locked")
    index(locked)
    (tmp_path / "tools").mkdir()
    for name in ("venv.sh", "registries.sh"):
        shutil.copy(PROJECT_DIR / "tools" / name, tmp_path / "tools")
    (tmp_path / "tools" / "uv.txt").touch()
    (tmp_path / "uv.lock").touch()
    environment = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages"]
    subprocess.run([*environment, tmp_path / ".venv"], check=True)
    python = tmp_path / ".venv" / "bin" / "python"
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("this Python has no pip")
    digest = hashlib.sha256(locked.read_bytes()).hexdigest()
    requirement = f"tinypkg==1.0 ; python_version >= '3' --hash=sha256:{digest}"
    program = python.with_name("uv")  # exports the wheel of this test, and installs as uv does
    real = Path(sys.executable).with_name("uv")
    program.write_text(
        f'#!/bin/sh\ncase "$1" in export) echo "{requirement}";; *) exec "{real}" "$@";; esac\n'
    )
    program.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    ("setting", "version"), [("PIP_FIND_LINKS", "1.0+cpu"), ("PIP_EXTRA_INDEX_URL", "1.0")]
)
def test_another_file_of_a_locked_version_does_not_break_the_installation(
    tree: Path, setting: str, version: str
) -> None:
    other = wheel(tree / "other", version, "other")
    source = str(other.parent) if setting == "PIP_FIND_LINKS" else index(other)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP", "UV"))}
    sources = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": (tree / "locked").as_uri(),
        "UV_CACHE_DIR": str(tree / "cache"),
        setting: source,
    }
    done = subprocess.run(
        [tree / "tools" / "venv.sh", "server"], env=kept | sources, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    python = str(tree / ".venv" / "bin" / "python")
    module = [python, "-c", "import tinypkg; print(tinypkg.ORIGIN)"]
    assert subprocess.check_output(module, text=True) == "locked\n"
    assert (tree / ".venv" / ".installed-server").exists()
