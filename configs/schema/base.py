"""The base classes of configuration models."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Immutable; refuses unknown keys, so that a typo in a YAML fails before a replica starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(StrictModel):
    """The common fields of each YAML under `configs/tts`, `configs/stt` and `configs/llm`."""

    id: str  # the model's name in requests, such as "svc/slm-135m-q4"
    aliases: tuple[str, ...] = ()
    owned_by: str  # the publisher of the weights
    created: int  # Unix seconds of the weights' publication
    description: str | None = None  # what its users have to know, as lists show it
