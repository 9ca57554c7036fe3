"""Programs of the service in processes that are forked from one that has imported them, which takes
a tenth of the time of a start."""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from configs.settings import PROJECT_DIR
from tests.patience import PATIENCE_S

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        __name__,
        "deployments.cli.doctor",
        "deployments.cli.main",
        "deployments.join",
        "deployments.main",
        "deployments.operator",
        "models.weights.__main__",
    ]
)


def run_forked(
    module: str, arguments: Sequence[str], environment: dict[str, str], given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """As `subprocess.run` of `python -m module` with captured output, which gets `given`."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        for stream, content in zip(streams, (given, b"", b""), strict=True):
            stream.write_bytes(content)
        process = _CONTEXT.Process(target=_enter, args=(module, arguments, environment, streams))
        process.start()
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        output, errors = (stream.read_bytes() for stream in streams[1:])
        return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


def _enter(
    module: str, arguments: Sequence[str], environment: dict[str, str], streams: list[Path]
) -> None:
    os.chdir(PROJECT_DIR)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, stream in enumerate(streams):
        os.dup2(os.open(stream, os.O_WRONLY if descriptor else os.O_RDONLY), descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # else runpy warns
    runpy.run_module(module, run_name="__main__", alter_sys=True)
