"""Small volumes of their own, which a test can fill; where none can be mounted it is skipped."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = 64 * 1024


@contextmanager
def small_volume(folder: Path, megabytes: int) -> Iterator[Path]:
    """A tmpfs at `folder`, until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no volume can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(volume: Path, but_bytes: int = 0) -> Iterator[None]:
    """The volume has so few free bytes in the block."""
    ballast = volume / "ballast"
    try:
        for size in (BLOCK, 512, 1):
            with open(ballast, "ab", buffering=0) as file:
                try:
                    while file.write(b"\0" * size):
                        pass
                except OSError:
                    pass
        if but_bytes:
            os.truncate(ballast, ballast.stat().st_size - but_bytes)
        yield
    finally:
        ballast.unlink()
