"""Finds processes of a service and their listening addresses; kills, terminates or stops them."""

import os
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from tests.patience import PATIENCE_S

LISTENS = "0A"  # the state of a socket in /proc/net/tcp


def children(pid: int) -> list[int]:
    """The ids of all descendants of `pid`, in no order."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:  # it has ended
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def command_of(pid: int) -> str:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def listeners(pid: int) -> dict[str, set[str]]:
    """The listening addresses (`127.0.0.1:80`) of the process and its descendants, by command."""
    addresses: dict[str, str] = {}
    for file in ("tcp", "tcp6"):
        for line in Path("/proc/net", file).read_text().splitlines()[1:]:
            local, state, inode = (line.split()[number] for number in (1, 3, 9))
            if state == LISTENS:
                host, port = local.split(":")
                # Words in the byte order of the machine.
                words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
                address = ip_address(struct.pack(f"={len(words)}I", *words))
                mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
                addresses[f"socket:[{inode}]"] = f"{mapped or address}:{int(port, 16)}"
    found: dict[str, set[str]] = {}
    for process in [pid, *children(pid)]:
        with suppress(OSError):  # it has ended
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    if (where := addresses.get(os.readlink(descriptor))) is not None:
                        found.setdefault(command_of(process), set()).add(where)
    return found


def exposed(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Those that other machines can reach."""
    open_to_others = {
        command: {one for one in given if not ip_address(one.rpartition(":")[0]).is_loopback}
        for command, given in found.items()
    }
    return {command: given for command, given in open_to_others.items() if given}


def find(ancestor: int, title: str, *, within_s: float = PATIENCE_S) -> list[int]:
    """The descendants with `title` in their command line; waits until there is one."""
    deadline = time.monotonic() + within_s
    while True:
        if found := [pid for pid in children(ancestor) if title in command_of(pid)]:
            return found
        assert time.monotonic() < deadline, f"no process has {title!r} in its title"
        time.sleep(0.1)


def kill(ancestor: int, title: str) -> None:
    """Sends SIGKILL, which no process can handle, to all that `find` returns."""
    for pid in find(ancestor, title):
        os.kill(pid, signal.SIGKILL)


def terminate(ancestor: int, title: str, *, grace_s: float = 3.0) -> None:
    """SIGTERM, and after `grace_s` SIGKILL, as at the shutdown of an operating system.

    Ray's workers take note of SIGTERM only when their main thread has something to do.
    """
    found = find(ancestor, title)
    for pid in found:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(map(command_of, found)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """SIGSTOP until the block ends: the processes keep their connections and do nothing."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def assert_on_loopback(pid: int) -> None:
    """Every socket of the service with that id, and of its Ray cluster, is on the loopback."""
    found = listeners(pid)
    assert exposed(found) == {}
    text = " ".join(found)
    for part in ("gcs_server", "raylet", "Dashboard", "ServeReplica", "ServeController"):
        assert part in text, f"the test does not see {part}"
