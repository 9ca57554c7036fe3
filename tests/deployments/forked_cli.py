"""The command line in processes that are forked from one that has imported it, which takes a tenth
of the time of a start."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from configs.settings import PROJECT_DIR
from tests.patience import PATIENCE_S

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, "deployments.cli.main"])


def run_forked(
    arguments: Sequence[str], environment: dict[str, str], given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """As `subprocess.run` of `antiphon` with captured output, which gets `given`."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        for stream, content in zip(streams, (given, b"", b""), strict=True):
            stream.write_bytes(content)
        process = _CONTEXT.Process(target=_enter, args=(arguments, environment, streams))
        process.start()
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode is not None
        said = [stream.read_bytes() for stream in streams[1:]]
        return subprocess.CompletedProcess(arguments, process.exitcode, *said)


def _enter(arguments: Sequence[str], environment: dict[str, str], streams: list[Path]) -> None:
    os.chdir(PROJECT_DIR)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, stream in enumerate(streams):
        os.dup2(os.open(stream, os.O_WRONLY if descriptor else os.O_RDONLY), descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    sys.argv = ["antiphon", *arguments]
    from deployments.cli.main import main

    main()
