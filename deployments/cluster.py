"""Starts a Ray cluster on this machine, deploys to it and checks it.

Deployment is in stages, so that the first voice is ready before all models are loaded. Measured on
2 cores: loading all models, the gateway and the courier at once takes 40 s, and none answers before
33 s. With the gateway and one voice first, speech is ready after 21 s and all models after 34 s.
"""

import copy
import json
import logging
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from configs import environment
from configs.settings import PROJECT_DIR
from deployments.compat import RAY_SWITCHES, any_dashboard_agent_port, stop_late_node

Config = dict[str, Any]  # the content of `serve_config.yaml`

DASHBOARD_PORT = 8265
OBJECT_STORE_BYTES = 256 << 20  # handles send values by gRPC, so the store is hardly used


def prepare_environment() -> None:
    """Sets missing environment variables. Call it before the first import of `ray`."""
    # It may name another cluster: Ray's job client prefers it to its argument.
    os.environ.pop("RAY_ADDRESS", None)
    for name, value in RAY_SWITCHES.items():
        os.environ.setdefault(name, value)
    # Replicas can then import this project from any working folder.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT_DIR), *filter(None, paths)])


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
    """Raises OSError, yaml.YAMLError, or ValueError when the content is no mapping."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError(f"{str(path)!r} holds no configuration of Ray Serve")
    return config


def deploy(dashboard_url: str, config: Config) -> None:
    """Does what `serve deploy` does. Raises ValueError with Serve's message for invalid configs."""
    request = urllib.request.Request(
        f"{dashboard_url}/api/serve/applications/",
        data=json.dumps(config).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        raise ValueError(error.read().decode(errors="replace")) from None


def failures() -> list[str]:
    """One line for each application or deployment that cannot start."""
    from ray import serve

    lines = []
    for name, application in serve.status().applications.items():
        if application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            lines.append(f"{name}: {application.message.strip()}")
            lines += [
                f"{name}/{deployment}: {status.message.strip()}"
                for deployment, status in application.deployments.items()
                if status.message.strip()
            ]
    return lines


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
