"""The start in stages, so that the service speaks before everything is loaded.

Measured on 2 cores: loading all models, the gateway and the courier at once takes 40 s of both, and
none is there before 33 s. The gateway and one voice alone speak after 21 s, and all are there after
34 s.
"""

import copy
from typing import Any

Config = dict[str, Any]  # as `serve_config.yaml`


def first_voice(config: Config) -> str | None:
    """The deployment that speaks first: the first model for speech, when it is one of several."""
    for application in config["applications"]:
        args = application.get("args") or {}
        voices = list(args.get("tts", ()))
        if voices and len(application.get("deployments", ())) > 2:  # it, the index, and another
            return str(voices[0])
    return None


def first_stage(config: Config) -> Config:
    """What speaks: the gateway and the first voice; deploying `config` brings the rest.

    Other models have no replica yet, which is a change that restarts nothing. One whose number of
    replicas is fixed stays as it is.
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
    """What answers clients: all but what makes custom voices, which nobody waits for by seconds."""
    staged = copy.deepcopy(config)
    staged["applications"] = [
        application
        for application in staged["applications"]
        if {one["name"] for one in application.get("deployments", ())} != {"VoiceClone"}
    ]
    return staged
