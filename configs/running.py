"""The service that uses a data folder. It locks a file in the folder, so that one service uses the
folder at a time; the lock ends with the process. The file has its addresses for commands. They are
of use only in its network namespace, and the number of its process only in its process namespace:
containers, and machines that mount the folder, have others."""

import fcntl
import json
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import IO, Any

from configs.environment import SettingsError

FILE = "service.lock"
WAIT_S = 3.0  # for a service that is ending, and for readers of the file
ADDRESSES = "HOST PORT RAY_DASHBOARD_PORT CLUSTER_ADDRESS".split()
"""Variables that say where a service is in its network namespace."""
VARIABLES = [*ADDRESSES, "PUBLIC_URL", "TRUSTED_PROXIES", "ANTIPHON_ALONE"]
"""Variables that say where a service is, and whom it serves."""


def take(data_dir: Path, url: str, *, may_share: bool = False) -> IO[str] | None:
    """Takes a folder until the result is closed, or this process ends. If another service uses it,
    returns None where the two `may_share` it, or else raises SettingsError."""
    file = open(data_dir / FILE, "a+", opener=partial(os.open, mode=0o600))
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                other = _read(file)
                file.close()
                if may_share:
                    return None
                raise SettingsError(
                    f"ANTIPHON_DATA: {_name(other)} uses the folder {str(data_dir)!r}: stop it, or"
                    " set ANTIPHON_DATA to another folder"
                ) from None
            time.sleep(0.1)
        except OSError:  # a file system without locks, such as NFS without its lock service
            break
    variables = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    service = {"url": url, "process": os.getpid(), "machine": gethostname(), "variables": variables}
    file.truncate(0)
    json.dump({**service, "pid": _namespace("pid"), "net": _namespace("net")}, file)
    file.flush()
    return file


def find(data_dir: Path) -> str | None:
    """Returns the URL of the service that uses a folder, if there is one that this process can
    reach by it. Gives the variables that say whom it serves, and where it is if this process can
    reach it, the values of that service, unless this environment has other values."""
    service = _holder(data_dir) or {}
    is_near = service.get("net") == _namespace("net")
    for name, value in service.get("variables", {}).items():
        if is_near or name not in ADDRESSES:
            os.environ[name] = os.environ.get(name) or value
    return service.get("url") if is_near else None


def name_holder(data_dir: Path) -> str | None:
    """Names the service that uses a folder, wherever it runs; None if there is none."""
    service = _holder(data_dir)
    return None if service is None else _name(service)


def _holder(data_dir: Path) -> dict[str, Any] | None:
    """Returns what the service that uses a folder has written; None if no service uses it."""
    with suppress(OSError), open(data_dir / FILE, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file)
    return None


def _name(service: dict[str, Any]) -> str:
    if "pid" not in service:  # unreadable
        return "another service"
    if all(service.get(kind) == _namespace(kind) for kind in ("pid", "net")):
        return f"the service at {service.get('url')} (process {service.get('process')})"
    machine = service.get("machine", "unknown")
    return f"a service in another container or on another machine ({machine})"


def _namespace(kind: str) -> str:
    """Identifies a namespace of this process. Its number alone is the same on every machine."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink(f'/proc/self/ns/{kind}')}"
    return "unknown"


def _read(file: IO[str]) -> dict[str, Any]:
    """Reads the file; without content while it is written."""
    file.seek(0)
    try:
        return dict(json.load(file))
    except (ValueError, TypeError):  # it is written just now, or damaged
        return {}
