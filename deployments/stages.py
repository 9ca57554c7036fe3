"""Deploys in stages, so that the service speaks before all models are loaded.

Measured on 2 cores: loading all models, the gateway and the courier at once takes 40 s of both, and
none answers before 33 s. With the gateway and one voice first, speech is ready after 21 s and all
models after 34 s.
"""

import copy
from typing import Any

Config = dict[str, Any]  # as `serve_config.yaml`


def first_voice(config: Config) -> str | None:
    """The deployment to load first: the first speech model, when there are other models."""
    for application in config["applications"]:
        args = application.get("args") or {}
        voices = list(args.get("tts", ()))
        if voices and len(application.get("deployments", ())) > 2:  # it, the index, and another
            return str(voices[0])
    return None


def first_stage(config: Config) -> Config:
    """The gateway and the first voice; deploying `config` later adds the rest.

    Other autoscaled models get 0 replicas, a change that restarts nothing when it is undone. Models
    with a fixed number of replicas stay as they are.
    """
    voice = first_voice(config)
    staged = copy.deepcopy(config)
    if voice is None:
        return staged
    needed = []
    for application in staged["applications"]:
        deployments = application.get("deployments", [])
        names = {deployment["name"] for deployment in deployments}
        if voice in names:
            for deployment in deployments:
                scaling = deployment.get("autoscaling_config")
                if deployment["name"] != voice and isinstance(scaling, dict):
                    none_yet = {"min_replicas": 0, "initial_replicas": 0}
                    deployment["autoscaling_config"] = {**scaling, **none_yet}
        if voice in names or "Gateway" in names:
            needed.append(application)
    staged["applications"] = needed
    return staged


def second_stage(config: Config) -> Config:
    """All that answers clients, without what makes custom voices, which takes minutes anyway."""
    staged = copy.deepcopy(config)
    staged["applications"] = [
        application
        for application in staged["applications"]
        if {one["name"] for one in application.get("deployments", ())} != {"VoiceClone"}
    ]
    return staged
