"""From the name of a configuration to a loaded engine and its description."""

from dataclasses import asdict, fields
from typing import Any, TypeVar

from pydantic import TypeAdapter

from configs.load import load_yaml
from models.base import Engine
from models.info import ModelInfo
from models.llm.base import ChatEngine
from models.registry import EngineKind
from models.stt.base import STTEngine
from models.tts.base import TTSEngine
from models.weights.store import WeightStore

EngineT = TypeVar("EngineT", bound=Engine)
ModelT = TypeVar("ModelT", bound=TTSEngine | STTEngine | ChatEngine)


def load(kind: EngineKind[EngineT], name: str, weights: WeightStore) -> EngineT:
    """The engine of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    return _build(kind, load_yaml(TypeAdapter(kind.config), name), weights)


def load_model(
    kind: EngineKind[ModelT], name: str, weights: WeightStore, *, threads: int | None = None
) -> tuple[ModelT, ModelInfo]:
    """The same with its description, for the kinds of which clients see models.

    `threads` replaces that of the configuration, if it has any.
    """
    config: Any = load_yaml(TypeAdapter(kind.config), name)
    if threads is not None and "threads" in type(config).model_fields:
        config = config.model_copy(update={"threads": threads})
    engine = _build(kind, config, weights)
    described = {field.name for field in fields(ModelInfo)}
    declared = {
        fact: value for fact, value in asdict(engine.capabilities).items() if fact in described
    }
    if isinstance(engine, TTSEngine):
        declared |= {
            "tier": config.tier,
            "real_time_factor": config.real_time_factor,
            "voices": tuple(engine.voices()),
        }
    return engine, ModelInfo(
        id=config.id,
        kind=kind.name,  # type: ignore[arg-type]  # one of the three
        engine=config.engine,
        owned_by=config.owned_by,
        created=config.created,
        aliases=config.aliases,
        **declared,
    )


def _build(kind: EngineKind[EngineT], config: Any, weights: WeightStore) -> EngineT:
    engine: EngineT = kind.engine_class(config.engine)(config, weights)
    return engine
