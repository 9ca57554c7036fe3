"""The service that uses a data folder. It locks a file in the folder, so that one service uses the
folder at a time; the lock ends with the process. The file has its addresses for commands."""

import fcntl
import json
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from configs.environment import SettingsError

FILE = "service.lock"
WAIT_S = 3.0  # for a service that is ending, and for readers of the file
VARIABLES = (
    "HOST PORT RAY_DASHBOARD_PORT CLUSTER_ADDRESS PUBLIC_URL TRUSTED_PROXIES ANTIPHON_ALONE"
).split()
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
                file.seek(0)
                other = _read(file)
                file.close()
                if may_share:
                    return None
                raise SettingsError(
                    f"ANTIPHON_DATA: the service at {other.get('url')} (process"
                    f" {other.get('process')}) uses the folder {str(data_dir)!r}: stop it, or set"
                    " ANTIPHON_DATA to another folder"
                ) from None
            time.sleep(0.1)
        except OSError:  # a file system without locks, such as NFS without its lock service
            break
    variables = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    file.truncate(0)
    json.dump({"url": url, "process": os.getpid(), "variables": variables}, file)
    file.flush()
    return file


def find(data_dir: Path) -> str | None:
    """Returns the URL of the service that uses a folder, if there is one. Gives the variables
    that say where it is the values of that service, unless this environment has other values."""
    with suppress(OSError), open(data_dir / FILE, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            service = _read(file)
            for name, value in service.get("variables", {}).items():
                os.environ[name] = os.environ.get(name) or value
            return service.get("url")
    return None


def _read(file: IO[str]) -> dict[str, Any]:
    """Reads the file; without content while it is written."""
    try:
        return dict(json.load(file))
    except (ValueError, TypeError):  # it is written just now, or damaged
        return {}
