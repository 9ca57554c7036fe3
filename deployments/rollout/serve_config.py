"""Reads `serve_config.yaml`, and splits its deployment into stages.

In stages, the first voice is ready before all models are loaded. On 2 cores, loading all models,
the gateway and the worker at once took 40 s, and none answered before 33 s. With the gateway and
one voice first, speech was ready after 21 s and all models after 34 s (18 s and 30 s since Ray
polls less often).
"""

import copy
from pathlib import Path
from typing import Any

import yaml

from configs.environment import wyoming_address
from configs.load import CONFIGS_DIR, explain

Config = dict[str, Any]  # the content of `serve_config.yaml`


def read_config(path: Path) -> Config:
    """Read the file, and add the application of Wyoming if WYOMING_PORT is set. Raises ValueError
    with one sentence when the file cannot be read or has no applications."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {explain(error)}") from None
    if not isinstance(config, dict) or not isinstance(config.get("applications"), list):
        raise ValueError(f"{path} holds no configuration of Ray Serve")
    if wyoming_address() is not None:
        _add_wyoming(config["applications"])
    return config


def _add_wyoming(applications: list[Any]) -> None:
    """Add the application that serves Wyoming, unless it is listed."""
    wyoming = yaml.safe_load((CONFIGS_DIR / "serve_wyoming.yaml").read_text(encoding="utf-8"))
    paths = [listed.get("import_path") for listed in applications if isinstance(listed, dict)]
    if wyoming["import_path"] not in paths:
        applications.append(wyoming)


def entries(application: Config) -> list[Config]:
    """Return the entries of an application's deployments, except entries of a wrong type."""
    listed = application.get("deployments")
    if not isinstance(listed, list):
        return []
    return [entry for entry in listed if isinstance(entry, dict)]


def model_names(config: Config) -> set[str]:
    """Return the deployments of models that the `args` of the applications name."""
    given = [application.get("args") or {} for application in config["applications"]]
    return {
        name
        for args in given
        for kind in ("tts", "stt", "chat", "embedding")
        for name in args.get(kind, ())
    }


def first_voice(config: Config) -> str | None:
    """Return the deployment to load first: the first speech model, if there are other models."""
    for application in config["applications"]:
        voices = (application.get("args") or {}).get("tts")
        if voices and len(entries(application)) > 2:  # the voice, the index, and another
            return str(voices[0])
    return None


def first_stage(config: Config) -> Config:
    """Return a configuration with the gateway and the first voice; deploying `config` later adds
    the rest. Other autoscaled models get 0 replicas, which can be undone without restarts. Models
    with a fixed number of replicas are not changed."""
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
