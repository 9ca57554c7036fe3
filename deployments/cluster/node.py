"""The Ray node of this machine: its environment, its private folders, and its start."""

import hmac
import logging
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from zlib import crc32

from configs import environment
from configs.environment import SettingsError, check_private
from configs.settings import PROJECT_DIR, Settings
from deployments.cluster.compat import RAY_SWITCHES, node_options, publish_release, stop_late_node
from deployments.cluster.release import release

OBJECT_STORE_BYTES = 256 << 20  # handles send values by gRPC, so the store is hardly used
DASHBOARD_S = 30.0
# Sessions of Ray, 4 MB or more each, which Ray never deletes: the newest, and the first of a day,
# which have the logs of the first failure of a service that is restarted again and again.
KEPT_SESSIONS, DAY_S = 5, 24 * 3600.0
# A path of a local socket has at most 107 bytes, of which Ray needs 68 after RAY_TMPDIR:
# "/ray/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store". Ray joins paths by colons,
# and does not quote the path of Python in a worker's shell command (`RuntimeEnvContext`).
RAY_PATH = re.compile(r"[\w@+=,./-]{1,39}", re.ASCII)


def prepare_environment(settings: Settings | None = None, *, joins: bool = False) -> None:
    """Set missing environment variables, before the first import of `ray`. Ray requires a token
    from every caller, since any user of this machine can call it. With `settings`, the token is in
    a file of the data folder. If RAY_AUTH_MODE is set, it takes precedence."""
    # RAY_ADDRESS may name another cluster, and Ray's job client prefers it to its argument.
    os.environ.pop("RAY_ADDRESS", None)
    if joins or environment.cluster_address() is not None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
    for name, value in RAY_SWITCHES.items():
        os.environ.setdefault(name, value)
    if settings is not None and asks_for_token() and not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(_token_file(settings)))
    # Replicas can then import this project from any working folder.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT_DIR), *filter(None, paths)])


def asks_for_token() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def _token_file(settings: Settings) -> Path:
    """Return the file with the token of the cluster, which only its user can read. The token is
    derived from a secret, so that it is the same on every machine with the same secrets."""
    path = settings.data_dir / "ray_token"
    token = hmac.digest(settings.secrets.api_key_pepper.encode(), b"ray token", "sha256").hex()
    if not path.exists() or path.read_text() != token:
        with open(path, "w", opener=partial(os.open, mode=0o600)) as file:
            file.write(token)
    return path


def keep_private(data_dir: Path) -> None:
    """Keep other users of this machine out of everything that this process and its children create.

    Ray makes its folders writable for all users (mode 777), and jobs run their code from one of
    them. They are therefore inside a folder of mode 700: RAY_TMPDIR, which is created if it is
    missing, or else a new folder in the system's temporary folder, to which the link `ray` in the
    data folder points. Ended sessions of Ray in it are deleted, except for the newest and the
    first ones of the last day. Raises SettingsError.
    """
    os.umask(0o077)
    link = data_dir / "ray"
    folder = environment.home_path(
        "RAY_TMPDIR", os.environ.get("RAY_TMPDIR") or str(link)
    ).resolve()
    if os.environ.get("RAY_TMPDIR") and RAY_PATH.fullmatch(str(folder)):
        with suppress(OSError):  # `check_folder` reports the reason
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        check_folder(folder)
    except SettingsError:
        if os.environ.get("RAY_TMPDIR") or (link.is_dir() and not link.is_symlink()):
            raise
        # The first start, or the machine has deleted the folder since the last one.
        folder = new_folder("antiphon-ray-")
        check_private(folder, "TMPDIR", has_code=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
    os.environ["RAY_TMPDIR"] = str(folder)
    link_paths(folder)
    sessions = sorted(folder.glob("ray/session_2*"))
    of_day = [session for session in sessions if time.time() - _last_change(session) < DAY_S]
    for session in sessions[:-KEPT_SESSIONS]:
        if session not in of_day[:KEPT_SESSIONS] and not _is_alive(session):
            shutil.rmtree(session, ignore_errors=True)


def _last_change(session: Path) -> float:
    with suppress(OSError):  # another start deletes it
        return max(path.lstat().st_mtime for path in (session, *session.glob("logs/*")))
    return 0.0


def _is_alive(session: Path) -> bool:
    """Whether the raylet of a session of Ray may run, such as that of another service."""
    with socket.socket(socket.AF_UNIX) as raylet:
        raylet.settimeout(1.0)  # a stopped process accepts no connection
        try:
            raylet.connect(f"{session}/sockets/raylet")
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # no permission, too many files
            pass
    return True


def check_folder(folder: Path) -> None:
    """Raise SettingsError for a RAY_TMPDIR that other users can reach, or that Ray cannot use."""
    check_private(folder, "RAY_TMPDIR", has_code=True)
    if not RAY_PATH.fullmatch(str(folder)):
        rule = "at most 39 characters, which are letters, digits and @+=,._-"
        raise SettingsError(f"RAY_TMPDIR: {str(folder)!r} must be a path of {rule}")


def new_folder(prefix: str) -> Path:
    """Make a folder for Ray in the system's temporary folder, or in /tmp if Ray cannot use that."""
    place = tempfile.gettempdir()
    place = place if RAY_PATH.fullmatch(f"{place}/{prefix}12345678") else "/tmp"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


def link_paths(folder: Path) -> None:
    """Replace paths that Ray cannot use with links in `folder`, before the first import of `ray`.
    These are the path of Python if a shell would split it, and the path of temporary files if a
    socket in it would have too long a name."""
    if shlex.quote(sys.prefix) != sys.prefix:
        link = _link(sys.prefix, folder)
        sys.executable = sys.executable.replace(sys.prefix, link, 1)
        sys.path[:] = [path.replace(sys.prefix, link, 1) for path in sys.path]
    if not RAY_PATH.fullmatch(temporary := tempfile.gettempdir()):
        os.environ["TMPDIR"] = _link(temporary, folder)


def _link(path: str, folder: Path) -> str:
    link = f"{folder}/link-{crc32(os.fsencode(path)):x}"
    with suppress(FileExistsError):
        os.symlink(path, link)
    return link


def start(num_cpus: int | None = None, attempts: int = 3) -> str:
    """Start a cluster that ends with this process; return the dashboard's URL. Raises RuntimeError
    if it does not start."""
    import ray

    host, port = environment.cluster_address() or (None, None)
    try:
        with node_options(gcs=port):
            context = ray.init(
                "local",  # otherwise Ray joins a cluster that `ray start` began on this machine
                num_cpus=num_cpus,
                include_dashboard=True,
                dashboard_host=host or "127.0.0.1",
                dashboard_port=environment.port("RAY_DASHBOARD_PORT", environment.DASHBOARD_PORT),
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.WARNING,
                namespace="serve",
                _node_ip_address=host,
            )
    except Exception as error:  # Ray has no class for it; a busy machine may need over 30 s
        if attempts == 1 or not stop_late_node(error):
            reason = str(error).strip().partition("\n")[0].rstrip(": ") or type(error).__name__
            logs = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "session_latest", "logs")
            raise RuntimeError(
                f"Ray did not start; this machine may be too busy. It reports: {reason}. "
                f"Its logs are in {logs}"
            ) from error
        return start(num_cpus, attempts - 1)
    if host is not None:
        publish_release(release())
    url = f"http://{context.dashboard_url}"
    _wait_for_dashboard(url)
    return url


def resources() -> list[dict[str, float]]:
    """Return the resources of each machine of the cluster, by Ray's names."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _wait_for_dashboard(url: str) -> None:
    """Wait until the dashboard listens. If Redis has the tables of Ray's GCS, Ray names the
    dashboard of an earlier start until the new one listens."""
    address = urlsplit(url)
    until = time.monotonic() + DASHBOARD_S
    while time.monotonic() < until:  # after that, the first request reports the problem
        with suppress(OSError):
            socket.create_connection((address.hostname, address.port), timeout=1.0).close()
            return
        time.sleep(0.1)
