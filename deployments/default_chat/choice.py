"""Chooses the model of `model: auto`. A chat model is chosen by CHAT_MODEL, by what runs, or by the
free memory; another model is the one that its deployment wants, once its weights are here."""

import copy
from typing import Any

from yaml import YAMLError

from configs.environment import free_bytes
from configs.load import load_yaml
from configs.schema.serve import AUTO, DefaultChatConfig
from configs.settings import chat_model, weights_dir
from deployments.rollout.serve_config import Config, entries
from models.errors import EngineError
from models.registry import artefacts_of, files_of, kind_of
from models.weights.store import WeightStore

GB = 10**9


def resolved(config: Config, running: dict[str, Any] | None = None) -> Config:
    """Return the configuration with a model in place of each AUTO, and with the wanted model beside
    it.

    Applications that are `running` keep the model that they want, because it takes memory that was
    free before, unless CHAT_MODEL names another. AUTO remains where no weights are present. Raises
    SettingsError.
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
            if (entry.get("user_config") or {}).get("model") != AUTO:
                continue
            options = [entry["user_config"].get("wanted")]
            if entry["name"] in chats:
                wanted = named if named != AUTO else before.get(entry["name"]) or by_memory()
                options = candidates(wanted)
            if options[0] is not None:
                model = next(filter(is_here, options), AUTO)
                chosen = {"model": model, "wanted": options[0]}
                entry["user_config"] = {**entry["user_config"], **chosen}
    return config


def chosen() -> str:
    """Return the configuration that CHAT_MODEL names, or else `by_memory`. Raises SettingsError."""
    named = chat_model()
    return by_memory() if named == AUTO else named


def by_memory() -> str:
    """Return the best model of `configs/default_chat.yaml` for which enough memory is free."""
    options = load_yaml(DefaultChatConfig, "default_chat")
    free_gb = free_bytes() / GB - options.own_gb
    fitting = (option.model for option in options.models if option.free_gb <= free_gb)
    return next(fitting, options.models[-1].model)


def candidates(wanted: str) -> list[str]:
    """Return the model, and those that may answer until it can, the best first."""
    options = [option.model for option in load_yaml(DefaultChatConfig, "default_chat").models]
    return [wanted, *options[options.index(wanted if wanted in options else by_memory()) :]]


def is_here(model: str) -> bool:
    """Whether all weights of the model are on this machine with the right bytes, which are read
    only if they have changed. A configuration that cannot be read counts as present: loading it
    gives the reason."""
    try:
        config, store = kind_of(model).read(model), WeightStore(weights_dir())
        for artefact in artefacts_of(config):
            store.converted(artefact)
            if not all(map(store.is_checked, store.artefact(artefact).files.values())):
                return False
    except (EngineError, OSError):
        return False
    except (ValueError, YAMLError):
        return True
    return all(path.exists() for path in files_of(config))
