"""Chooses the model of `model: auto`. A chat model is chosen by CHAT_MODEL, by what runs, or by the
free memory; any other model is the one that its deployment wants, once its weights are here."""

from typing import Any

from yaml import YAMLError

from configs.environment import free_bytes
from configs.load import load_yaml
from configs.schema.serve import AUTO, DefaultChatConfig
from configs.settings import chat_model, weights_dir
from models.errors import EngineError
from models.registry import CHAT, EngineKind, artefacts_of, files_of, kind_of
from models.weights.store import WeightStore

GB = 10**9


def chosen_here(kind: EngineKind[Any], user_config: dict[str, Any]) -> dict[str, Any]:
    """Return the `user_config` of a replica with AUTO replaced by a model. After a deployment by
    Ray's own commands, the replica has to choose. AUTO remains if no weights are present."""
    wanted = user_config.get("wanted")
    options = [wanted] if wanted else candidates(chosen()) if kind is CHAT else []
    return {**user_config, **best_here(options)} if options else user_config


def best_here(options: list[str]) -> dict[str, str]:
    """Return the fields of a `user_config` that load the first model whose weights are here, until
    the preferred one has arrived."""
    return {"model": next(filter(is_here, options), AUTO), "wanted": options[0]}


def chosen() -> str:
    """Return the configuration that CHAT_MODEL names, or else `by_memory`. Raises SettingsError."""
    named = chat_model()
    return by_memory() if named == AUTO else named


def by_memory(free: int | None = None) -> str:
    """Return the best model of `configs/default_chat.yaml` for which enough memory is `free`
    (bytes; by default, what is free now)."""
    options = load_yaml(DefaultChatConfig, "default_chat")
    free_gb = (free_bytes() if free is None else free) / GB
    fitting = (option.model for option in options.models if options.fits(option, free_gb))
    return next(fitting, options.models[-1].model)


def candidates(wanted: str, free: int | None = None) -> list[str]:
    """Return the model, and those that may answer until it can, the best first. If it is not one of
    `configs/default_chat.yaml`, they need no more memory than is `free`, as in `by_memory`."""
    options = [option.model for option in load_yaml(DefaultChatConfig, "default_chat").models]
    return [wanted, *options[options.index(wanted if wanted in options else by_memory(free)) :]]


def is_here(model: str) -> bool:
    """Whether all weights of the model are on this machine with the right bytes, which are read
    only if they have changed. A configuration that cannot be read counts as present: loading it
    gives the reason."""
    try:
        config = kind_of(model).read(model)
        store = WeightStore(weights_dir())
        for artefact in artefacts_of(config):
            store.converted(artefact)
            if not all(map(store.is_checked, store.artefact(artefact).files.values())):
                return False
    except (EngineError, OSError):
        return False
    except (ValueError, YAMLError):
        return True
    return all(path.exists() for path in files_of(config))
