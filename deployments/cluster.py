"""Starts a Ray cluster on this machine, deploys to it and checks it.

Deployment is in stages, so that the first voice is ready before all models are loaded. Measured on
2 cores: loading all models, the gateway and the worker at once takes 40 s, and none answers before
33 s. With the gateway and one voice first, speech is ready after 21 s and all models after 34 s;
after 18 s and 30 s since Ray's controller looks around less often.
"""

import copy
import hmac
import logging
import os
import re
import shlex
import socket
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import httpx
import yaml

from configs import environment
from configs.environment import SettingsError, check_private
from configs.load import CONFIGS_DIR, explain
from configs.settings import PROJECT_DIR, Settings
from deployments.compat import RAY_SWITCHES, node_options, publish_release, stop_late_node
from deployments.release import release

Config = dict[str, Any]  # the content of `serve_config.yaml`

OBJECT_STORE_BYTES = 256 << 20  # handles send values by gRPC, so the store is hardly used
DASHBOARD_S = 30.0
# A path of a local socket has 107 bytes at most: that of Ray's adds 68 to RAY_TMPDIR, with
# "/ray/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store". Ray joins paths by colons,
# and begins the shell's line of a worker with that of Python unquoted (`RuntimeEnvContext`).
RAY_PATH = re.compile(r"[\w@+=,./-]{1,39}", re.ASCII)


def prepare_environment(settings: Settings | None = None, *, joins: bool = False) -> None:
    """Sets missing environment variables. Call it before the first import of `ray`.

    Ray asks every caller for a token, since any user of this machine can call it. With `settings`
    a file in the data folder has the token. RAY_AUTH_MODE decides otherwise.
    """
    # It may name another cluster: Ray's job client prefers it to its argument.
    os.environ.pop("RAY_ADDRESS", None)
    if joins or environment.cluster_address() is not None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
    for name, value in RAY_SWITCHES.items():
        os.environ.setdefault(name, value)
    if settings is not None and _asks_for_token() and not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(_token_file(settings)))
    # Replicas can then import this project from any working folder.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT_DIR), *filter(None, paths)])


def _asks_for_token() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def _token_file(settings: Settings) -> Path:
    """The file with the token of the cluster, for its user only: derived from a secret, so that
    every machine with the same secrets has the same."""
    path = settings.data_dir / "ray_token"
    token = hmac.digest(settings.secrets.api_key_pepper.encode(), b"ray token", "sha256").hex()
    if not path.exists() or path.read_text() != token:
        with open(path, "w", opener=partial(os.open, mode=0o600)) as file:
            file.write(token)
    return path


def keep_private(data_dir: Path) -> None:
    """Lets no other user of this machine reach what this process and those it starts create.

    Ray makes its folders writable for all users (mode 777), and jobs run their code from one of
    them, so they lie in a folder of mode 700: RAY_TMPDIR, or one in the system's temporary folder,
    which `ray` in the data folder leads to. Raises SettingsError.
    """
    os.umask(0o077)
    link = data_dir / "ray"
    folder = Path(os.environ.get("RAY_TMPDIR") or link).expanduser().resolve()
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


def check_folder(folder: Path) -> None:
    """Raises SettingsError for a RAY_TMPDIR that others can reach, or that Ray cannot use."""
    check_private(folder, "RAY_TMPDIR", has_code=True)
    if not RAY_PATH.fullmatch(str(folder)):
        rule = "at most 39 characters, which are letters, digits and @+=,._-"
        raise SettingsError(f"RAY_TMPDIR: {str(folder)!r} has to be a path of {rule}")


def new_folder(prefix: str) -> Path:
    """Makes a folder for Ray in the system's temporary folder, or in /tmp if it cannot use that."""
    place = tempfile.gettempdir()
    place = place if RAY_PATH.fullmatch(f"{place}/{prefix}12345678") else "/tmp"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


def link_paths(folder: Path) -> None:
    """Replaces paths that Ray cannot use by links in `folder`: that of Python where a shell would
    split it, and that of temporary files where a socket in it would have too long a name.

    Call it before the first import of `ray`.
    """
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
    """Starts a cluster that ends with this process; returns the dashboard's URL."""
    import ray

    host, port = environment.cluster_address() or (None, None)
    try:
        with node_options(gcs=port):
            context = ray.init(
                "local",  # without it a cluster that `ray start` made on this machine is joined
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
    except Exception as error:  # Ray's own, of no class: a busy machine may need more than its 30 s
        if attempts == 1 or not stop_late_node(error):
            raise
        return start(num_cpus, attempts - 1)
    if host is not None:
        publish_release(release())
    url = f"http://{context.dashboard_url}"
    _wait_for_dashboard(url)
    return url


def _wait_for_dashboard(url: str) -> None:
    """Where the tables of Ray's GCS are in Redis, Ray names the dashboard of an earlier start
    before that of this one listens."""
    address = urlsplit(url)
    until = time.monotonic() + DASHBOARD_S
    while time.monotonic() < until:  # then the first request says what is wrong
        with suppress(OSError):
            socket.create_connection((address.hostname, address.port), timeout=1.0).close()
            return
        time.sleep(0.1)


def read_config(path: Path) -> Config:
    """With the application of Wyoming, if it is on.

    Raises ValueError with one sentence when the file cannot be read or has no applications.
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {explain(error)}") from None
    if not isinstance(config, dict) or not isinstance(config.get("applications"), list):
        raise ValueError(f"{path} holds no configuration of Ray Serve")
    return _with_wyoming(config)


def _with_wyoming(config: Config) -> Config:
    """With the application that serves Wyoming where WYOMING_PORT is set."""
    if environment.wyoming_address() is None:
        return config
    wyoming = yaml.safe_load((CONFIGS_DIR / "serve_wyoming.yaml").read_text(encoding="utf-8"))
    listed = config["applications"]
    paths = [one.get("import_path") for one in listed if isinstance(one, dict)]
    if wyoming["import_path"] not in paths:
        listed.append(wyoming)
    return config


def dashboard() -> str:
    """The URL of the dashboard of the service that this environment starts."""
    host, _ = environment.cluster_address() or ("127.0.0.1", 0)
    return f"http://{host}:{environment.port('RAY_DASHBOARD_PORT', environment.DASHBOARD_PORT)}"


def deploy(dashboard_url: str, config: Config) -> None:
    """Does what `serve deploy` does. Raises ValueError with Serve's message for invalid configs."""
    _ask(dashboard_url, config)


def state(dashboard_url: str) -> dict[str, Any]:
    """What Serve's API says of itself. Raises ValueError."""
    found: dict[str, Any] = _ask(dashboard_url).json()
    return found


def applications(dashboard_url: str) -> dict[str, Any]:
    """The state of each application by name. Raises ValueError."""
    return dict(state(dashboard_url)["applications"])


def running(state: dict[str, Any]) -> Config:
    """The configuration that was deployed last, of what `state` returns."""
    config = {key: state[key] for key in ("proxy_location",) if key in state}
    config["applications"] = [one["deployed_app_config"] for one in state["applications"].values()]
    return config


def _ask(dashboard_url: str, config: Config | None = None) -> httpx.Response:
    """Serve's API: sends the `config`, or reads the state. Raises ValueError."""
    headers = {}
    if _asks_for_token():
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
        try:
            token = os.environ.get("RAY_AUTH_TOKEN") or file.read_text().strip()
        except OSError as error:
            raise ValueError(f"Ray's token cannot be read: {error}") from None
        headers["Authorization"] = f"Bearer {token}"
    method, url = "GET" if config is None else "PUT", f"{dashboard_url}/api/serve/applications/"
    try:
        with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:  # past proxies
            response = client.request(method, url, json=config)
    except httpx.HTTPError as error:
        raise ValueError(
            f"Ray's dashboard does not answer at {dashboard_url} ({error}): is the service running,"
            " with this RAY_DASHBOARD_PORT, and CLUSTER_ADDRESS if it has one?"
        ) from None
    if response.is_error:
        raise ValueError(response.text)
    return response


def readyz(url: str) -> dict[str, Any] | None:
    """The gateway's readiness report; None while it is not ready, or for another program."""
    answer = ask(url)
    return answer[1] if answer is not None and answer[0] == 200 else None


def ask(url: str) -> tuple[int, dict[str, Any]] | None:
    """The gateway's status and body, also of an error; None without an answer in JSON."""
    try:
        response = httpx.get(url, timeout=5, trust_env=False)  # no proxy knows this machine
        body = response.json()
    except (httpx.HTTPError, ValueError):
        return None
    return (response.status_code, body) if isinstance(body, dict) else None


def local_url(settings: Settings) -> str:
    """The service's URL for this machine."""
    return environment.address_on_this_machine(settings.host, settings.port)


def failures(state: dict[str, Any]) -> dict[str, str]:
    """The reasons for which applications, or their deployments (`models/Chat`), do not start."""
    found: dict[str, str] = {}
    for name, application in state.items():
        if application["status"] in _FAILED:
            reasons = {
                f"{name}/{deployment}": _reason(status["message"])
                for deployment, status in application["deployments"].items()
                if status["status"] in _FAILED
            }
            found |= reasons or {name: _reason(application["message"])}
    return found


_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


def _reason(message: str) -> str:
    """The sentence of ModelNotLoaded or SettingsError in Serve's message, which has tracebacks of
    Ray around it, or its last line: that of a replica that died."""
    sentences = re.findall(r"(?:ModelNotLoaded|SettingsError): (.+)", message)
    return (sentences or message.strip().splitlines() or ["no reason is given"])[-1].strip()


def entries(application: Config) -> list[Config]:
    """The entries of its deployments."""
    listed = application.get("deployments")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def model_names(config: Config) -> set[str]:
    """The deployments of models that the `args` of the applications name."""
    given = [application.get("args") or {} for application in config["applications"]]
    return {
        name for args in given for kind in ("tts", "stt", "chat") for name in args.get(kind, ())
    }


def first_voice(config: Config) -> str | None:
    """The deployment to load first: the first speech model, when there are other models."""
    for application in config["applications"]:
        voices = (application.get("args") or {}).get("tts")
        if voices and len(entries(application)) > 2:  # the voice, the index, and another
            return str(voices[0])
    return None


def first_stage(config: Config) -> Config:
    """The gateway and the first voice; `config`, deployed later, adds the rest.

    Other autoscaled models get 0 replicas, a change that can be undone without restarts. Models
    with a fixed number of replicas are not changed.
    """
    voice = first_voice(config)
    staged = copy.deepcopy(config)
    if voice is None:
        return staged
    needed = []
    for application in staged["applications"]:
        names = {deployment["name"] for deployment in entries(application)}
        if voice in names:
            for deployment in application["deployments"]:
                scaling = deployment.get("autoscaling_config")
                if deployment["name"] != voice and isinstance(scaling, dict):
                    none_yet = {"min_replicas": 0, "initial_replicas": 0}
                    deployment["autoscaling_config"] = {**scaling, **none_yet}
        if voice in names or "Gateway" in names:
            needed.append(application)
    staged["applications"] = needed
    return staged
