"""Starts a Ray cluster on this machine, deploys to it and checks it.

Deployment is in stages, so that the first voice is ready before all models are loaded. Measured on
2 cores: loading all models, the gateway and the courier at once takes 40 s, and none answers before
33 s. With the gateway and one voice first, speech is ready after 21 s and all models after 34 s.
"""

import copy
import json
import logging
import os
import re
import secrets
import urllib.error
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from configs import environment
from configs.environment import SettingsError
from configs.load import explain
from configs.settings import PROJECT_DIR, Settings
from deployments.compat import RAY_SWITCHES, any_dashboard_agent_port, stop_late_node

Config = dict[str, Any]  # the content of `serve_config.yaml`

DASHBOARD_PORT = 8265
OBJECT_STORE_BYTES = 256 << 20  # handles send values by gRPC, so the store is hardly used


def prepare_environment(settings: Settings | None = None) -> None:
    """Sets missing environment variables. Call it before the first import of `ray`.

    Where the `settings` let other machines in, Ray asks every caller for a token, which a file in
    the data folder has; RAY_AUTH_MODE decides otherwise.
    """
    # It may name another cluster: Ray's job client prefers it to its argument.
    os.environ.pop("RAY_ADDRESS", None)
    if settings is not None and not environment.is_loopback(settings.host):
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if settings is not None and _asks_for_token() and not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(_token_file(settings.data_dir)))
    for name, value in RAY_SWITCHES.items():
        os.environ.setdefault(name, value)
    # Replicas can then import this project from any working folder.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT_DIR), *filter(None, paths)])


def _asks_for_token() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def _token_file(folder: Path) -> Path:
    """The file with the token of the cluster, made at the first start for its user only."""
    path = folder / "ray_token"
    with suppress(FileExistsError), open(path, "x", opener=partial(os.open, mode=0o600)) as file:
        file.write(secrets.token_hex(32))
    return path


def start(num_cpus: int | None = None, attempts: int = 3) -> str:
    """Starts a cluster that ends with this process; returns the dashboard's URL."""
    import ray

    try:
        with any_dashboard_agent_port():
            context = ray.init(
                "local",  # without it a cluster that `ray start` made on this machine is joined
                num_cpus=num_cpus,
                include_dashboard=True,
                dashboard_host="127.0.0.1",
                dashboard_port=environment.port("RAY_DASHBOARD_PORT", DASHBOARD_PORT),
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.WARNING,
                namespace="serve",
            )
    except Exception as error:  # Ray's own, of no class: a busy machine may need more than its 30 s
        if attempts == 1 or not stop_late_node(error):
            raise
        return start(num_cpus, attempts - 1)
    return f"http://{context.dashboard_url}"


def read_config(path: Path) -> Config:
    """Raises ValueError with one sentence when it cannot be read or has no applications."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {explain(error)}") from None
    if not isinstance(config, dict) or not isinstance(config.get("applications"), list):
        raise ValueError(f"{path} holds no configuration of Ray Serve")
    return config


def dashboard() -> str:
    """The URL of the dashboard of the service that this environment starts."""
    return f"http://127.0.0.1:{environment.port('RAY_DASHBOARD_PORT', DASHBOARD_PORT)}"


def deploy(dashboard_url: str, config: Config) -> None:
    """Does what `serve deploy` does. Raises ValueError with Serve's message for invalid configs."""
    _ask(dashboard_url, config)


def applications(dashboard_url: str) -> dict[str, Any]:
    """The state of each application by name, as Serve's API has it. Raises ValueError."""
    found: dict[str, Any] = json.loads(_ask(dashboard_url))["applications"]
    return found


def _ask(dashboard_url: str, config: Config | None = None) -> bytes:
    """Serve's API: sends the `config`, or reads the state. Raises ValueError."""
    headers = {"Content-Type": "application/json"}
    if _asks_for_token():
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
        try:
            token = os.environ.get("RAY_AUTH_TOKEN") or file.read_text().strip()
        except OSError as error:
            raise ValueError(f"Ray's token cannot be read: {error}") from None
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(
        f"{dashboard_url}/api/serve/applications/",
        data=None if config is None else json.dumps(config).encode(),
        headers=headers,
        method="GET" if config is None else "PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            body: bytes = response.read()
            return body
    except urllib.error.HTTPError as error:
        raise ValueError(error.read().decode(errors="replace")) from None
    except OSError as error:
        raise ValueError(
            f"Ray's dashboard does not answer at {dashboard_url} ({error}): is the service running,"
            " with this RAY_DASHBOARD_PORT?"
        ) from None


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


def check_stores(settings: Settings) -> None:
    """Raises SettingsError when several machines are in the cluster, and each would have a database
    or files of its own: accounts, credit and recordings would be split without an error."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    machines = {(node["NodeManagerHostname"], node["NodeManagerAddress"]) for node in alive}
    if len(machines) < 2:
        return
    found = []
    if settings.database_url.startswith("sqlite"):
        found.append("DATABASE_URL is SQLite: set it to one PostgreSQL database")
    is_folder = settings.storage_url.startswith(("file://", "local://", "memory://"))
    if is_folder and not settings.storage_shared:
        found.append(
            "STORAGE_URL is a folder: set it to an object store, or STORAGE_SHARED=on if the folder"
            " is on a volume that every machine has mounted"
        )
    if found:
        each = f"Ray has {len(machines)} machines, which would have data of their own"
        raise SettingsError(f"{each}; {'; '.join(found)}")


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
        if voices and len(_deployment_names(application)) > 2:  # the voice, the index, and another
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
        names = _deployment_names(application)
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


def second_stage(config: Config) -> Config:
    """All applications except the jobs of custom voices, which take minutes anyway."""
    kept = [one for one in config["applications"] if _deployment_names(one) != {"VoiceClone"}]
    return {**config, "applications": kept}


def _deployment_names(application: Config) -> set[str]:
    """The names of its deployments."""
    return {deployment["name"] for deployment in application.get("deployments", ())}
