"""The decoder process with hostile code in place of FFmpeg, as a hole in it would run.

A job says by its `attack` what the code does; `escapes` answers with what it could do after all.
"""

import ctypes
import io
import os
import resource
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.audio.decode import worker

worker.MAX_CPU_S = 1  # so that a test of the limit is short
_decode, _libc = worker.decode, ctypes.CDLL(None)
_ATTACH = 16


def decode(job: dict[str, Any], source: BinaryIO, target: BinaryIO) -> dict[str, Any]:
    match None if isinstance(source, io.BytesIO) else job.get("attack"):
        case None:  # also while it warms up, outside the sandbox
            return _decode(job, source, target)
        case "spin":
            while True:
                pass
        case "crash":
            ctypes.string_at(0)
        case "linger":
            answer = b'{"duration_s": 1}'
            while True:  # answers again and again, and lives on
                for file in range(3, 64):
                    _libc.write(file, answer, len(answer))
        case "flood":
            data = b"x" * 2**16
            reply = next(file for file in range(3, 64) if _libc.write(file, data, 1) == 1)
            while True:
                _libc.write(reply, data, len(data))
        case "escapes":
            return {"duration_s": 1, "escapes": sorted(escapes(job, source.fileno(), target))}
    raise AssertionError


def escapes(job: dict[str, Any], source: int, target: BinaryIO) -> set[str]:
    """The names of the attempts that were not refused."""
    secret = job["secret"]
    attempts: dict[str, Callable[[], object]] = {
        "read a secret": lambda: Path(secret).read_bytes(),
        "see a file": lambda: os.stat(secret),
        "list a folder": lambda: os.listdir("/"),
        "read the environment": lambda: Path("/proc/self/environ").read_bytes(),
        "write a file": lambda: Path(secret).with_name("made").write_bytes(b"x"),
        "write an unnamed file": tempfile.TemporaryFile,
        "delete a file": lambda: os.unlink(secret),
        "make a memory file": lambda: os.memfd_create("x"),
        "internet socket": lambda: socket.socket(socket.AF_INET),
        "local socket": lambda: socket.socket(socket.AF_UNIX),
        "netlink socket": lambda: socket.socket(socket.AF_NETLINK),
        "socket pair": socket.socketpair,
        "fork": os.fork,
        "thread": lambda: threading.Thread(target=len, args=("",)).start(),
        "program": lambda: os.execv("/bin/true", ["true"]),
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "signal": lambda: os.kill(os.getppid(), 0),
        "trace": lambda: _checked(_libc.ptrace(_ATTACH, os.getppid(), 0, 0)),
        "read memory": lambda: _checked(_libc.process_vm_readv(job["parent"], 0, 0, 0, 0, 0)),
        "become root": lambda: os.setuid(0),
        "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_CPU, (99, 99)),
        "duplicate a file": lambda: os.dup(source),
        "pipe": os.pipe,
        "much memory": lambda: bytearray(worker.MAX_MEMORY_BYTES),
        "much output": lambda: target.write(bytes(2**20)) and target.flush(),
        "other open files": partial(_read_others, source),
    }
    return {name for name, attempt in attempts.items() if _succeeds(attempt)}


def _read_others(own: int) -> None:
    """Reads what the process that forks has open: its jobs, and the files of other tenants."""
    for file in range(64):
        if file != own:
            try:
                if os.read(file, 1):
                    return
            except OSError:
                continue
    raise OSError


def _checked(result: int) -> None:
    if result < 0:
        raise OSError


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, MemoryError, ValueError, RuntimeError):
        return False
    return True


if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    worker.decode = decode
    worker.main()
