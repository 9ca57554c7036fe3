"""Runs the programs of docs/examples."""

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from configs.settings import PROJECT_DIR
from tests.patience import PATIENCE_S

EXAMPLES = PROJECT_DIR / "docs" / "examples"


def interpreter(name: str) -> list[str]:
    """The program that runs an example. Skips the test where it is Node, and is not there."""
    if not name.endswith(".mjs"):
        return [sys.executable]
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, so the examples in JavaScript were NOT tried")
    return [node, "--experimental-websocket"]  # Node 22 has WebSocket without it


@contextmanager
def running(
    name: str, *arguments: str, port: int, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """The program, once it listens; ends it."""
    command = [*interpreter(name), str(EXAMPLES / name), *arguments]
    with subprocess.Popen(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        try:
            wait_until_it_listens(program, port)
            yield program
        finally:
            program.terminate()


def wait_until_it_listens(program: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert program.poll() is None, "it has ended"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/none", timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError as error:
            if not isinstance(getattr(error, "reason", error), ConnectionRefusedError):
                return  # it speaks TLS
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.05)
