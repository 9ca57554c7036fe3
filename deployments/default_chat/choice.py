"""Chooses the models of `model: auto` in a configuration, before it is deployed."""

import copy
from typing import Any

from configs.schema.serve import AUTO
from configs.settings import chat_model
from deployments.replicas.choice import best_here, by_memory, candidates
from deployments.rollout.serve_config import Config, entries


def resolved(
    config: Config, running: dict[str, Any] | None = None, free: int | None = None
) -> Config:
    """Return the configuration with each AUTO replaced by a model, and with the wanted model added.
    A chat model is chosen by the memory that is `free` (bytes; by default, what is free now).

    Applications that are `running` keep the model that they want, unless CHAT_MODEL names another,
    since a new choice would count the memory of the running model as used. AUTO remains where no
    weights are present. Raises SettingsError.
    """
    before = {
        entry["name"]: (entry.get("user_config") or {}).get("wanted")
        for application in (running or {}).values()
        for entry in entries(application.get("deployed_app_config") or {})
    }
    config, named = copy.deepcopy(config), chat_model()
    for application in config["applications"]:
        chats = (application.get("args") or {}).get("chat", ())
        for entry in entries(application):
            user_config: Any = entry.get("user_config")
            if not isinstance(user_config, dict) or user_config.get("model") != AUTO:
                continue
            options: list[Any] = [user_config.get("wanted")]
            if entry["name"] in chats:
                wanted = named if named != AUTO else before.get(entry["name"]) or by_memory(free)
                options = candidates(wanted, free)
            if options[0] is not None:
                user_config |= best_here(options)
    return config
