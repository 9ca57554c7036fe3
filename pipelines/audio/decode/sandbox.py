"""Sandbox of the decoder: the kernel's restrictions on processes that read hostile files.

`enter` confines the process that forks (no network, no files, no rights of root), and `confine`
each child that reads a file (a list of system calls, little memory and CPU time). A kernel or
container that lacks a measure runs without it. Sources: `man 7 landlock`, `man 2 seccomp`, `man 7
namespaces`, and the kernel's `include/uapi/linux/{landlock,seccomp,audit}.h`."""

import ctypes
import os
import resource
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Measure = Literal["landlock", "seccomp", "namespaces"]

OVERFLOW_ID = 65534  # the user and group without rights
OPEN_FILES = 256  # open files of the process that forks: three per file in progress
MOST_KILLABLE = "800"  # oom_score_adj: killed before the service itself

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # landlock_*; the same numbers on all architectures
_LANDLOCK_VERSION = 1
# Rights that each version of Landlock handles: (files, network, signals and abstract sockets). It
# refuses what is handled and not allowed, and nothing is allowed.
_FILES, _BOTH = 1 << 13, 0b11
_HANDLED: tuple[tuple[int, ...], ...] = (
    (_FILES - 1,),
    (2 * _FILES - 1,),
    (4 * _FILES - 1,),
    (4 * _FILES - 1, _BOTH),
    (8 * _FILES - 1, _BOTH),
    (8 * _FILES - 1, _BOTH, _BOTH),
)
_NEW_IPC, _NEW_USER, _NEW_NET = 0x0800_0000, 0x1000_0000, 0x4000_0000
_SET_PDEATHSIG, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 22, 38
_FILTER = 2
_ALLOW, _REFUSE, _KILL = 0x7FFF_0000, 0x0005_0001, 0x8000_0000  # refused: EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06

# (AUDIT_ARCH, the numbers of: read write close lseek mmap mprotect munmap brk rt_sigaction
# rt_sigprocmask rt_sigreturn sched_yield mremap madvise exit futex exit_group clock_gettime
# getrandom restart_syscall). No call that opens, connects, forks, signals or traces.
_CALLS = {
    "x86_64": (
        0xC000_003E,
        (0, 1, 3, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 60, 202, 231, 228, 318, 219),
    ),
    "aarch64": (
        0xC000_00B7,
        (63, 64, 57, 62, 222, 226, 215, 214, 134, 135, 139, 124, 216, 233, 93, 98, 94, 113)
        + (278, 128),
    ),
}

_libc = ctypes.CDLL(None)
_libc.prctl.argtypes = (ctypes.c_int, *4 * (ctypes.c_ulong,))
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32)
_libc.syscall.restype = ctypes.c_long


def enter(memory_bytes: int) -> dict[Measure, bool]:
    """Confines this process and its children; returns which measures hold. Open files keep working,
    and no other can be opened: import everything before. Each process may take `memory_bytes` more
    of address space."""
    with open("/proc/self/statm") as pages:
        memory_bytes += int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(MOST_KILLABLE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    is_root = os.geteuid() == 0
    # Root needs no user namespace; it gives up its rights once the other namespaces are set up.
    flags = _NEW_IPC | _NEW_NET | (0 if is_root else _NEW_USER)
    held: dict[Measure, bool] = {"namespaces": _libc.unshare(flags) == 0}
    if is_root:
        with suppress(OSError):  # in a user namespace that has no such user
            os.setgroups([])
            os.setresgid(OVERFLOW_ID, OVERFLOW_ID, OVERFLOW_ID)
            os.setresuid(OVERFLOW_ID, OVERFLOW_ID, OVERFLOW_ID)
    _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    held["landlock"] = _refuse_files()
    held["seccomp"] = _holds_in_a_child(_filter_calls)
    return held


def confine(cpu_s: int, file_bytes: int) -> None:
    """Confines a child for good, before it reads its file. The child ends with its parent process.
    `file_bytes` limits the size of what it writes."""
    _libc.prctl(_SET_PDEATHSIG, 9, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))  # SIGXCPU, then SIGKILL
    for limit, value in (
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    _filter_calls()


def _refuse_files() -> bool:
    """Refuse every file, TCP port and, where Landlock can, signal from now on; return success."""
    version = _libc.syscall(_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    if version < 1:
        return False
    handled = _HANDLED[min(version, len(_HANDLED)) - 1]
    rules = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = _libc.syscall(_CREATE_RULESET, rules, len(rules), 0)
    if ruleset < 0:
        return False
    try:
        return bool(_libc.syscall(_RESTRICT_SELF, ruleset, 0, 0) == 0)
    finally:
        os.close(ruleset)


def _filter_calls() -> bool:
    """Refuse each system call that is not in the list from now on; return success."""
    if (calls := _CALLS.get(os.uname().machine)) is None:
        return False
    audit_arch, numbers = calls
    steps = [(_LOAD, 0, 0, 4), (_JUMP_IF_EQUAL, 1, 0, audit_arch), (_RETURN, 0, 0, _KILL)]
    steps.append((_LOAD, 0, 0, 0))
    for place, number in enumerate(numbers):
        steps.append((_JUMP_IF_EQUAL, len(numbers) - place, 0, number))
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    filters = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(steps), ctypes.addressof(filters))
    where = ctypes.create_string_buffer(program, len(program))
    return bool(_libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(where), 0, 0) == 0)


def _holds_in_a_child(measure: Callable[[], bool]) -> bool:
    if (child := os.fork()) == 0:
        os._exit(0 if measure() else 1)
    return os.waitpid(child, 0)[1] == 0
