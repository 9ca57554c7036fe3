"""The bases of every configuration model."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Immutable, and refuses unknown keys, so a typo in a YAML fails before a replica starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(StrictModel):
    """The head of each YAML under `configs/tts`, `configs/stt` and `configs/llm`."""

    id: str  # what clients name, such as "svc/slm-135m-q4"
    aliases: tuple[str, ...] = ()
    owned_by: str  # who made the weights
    created: int  # Unix seconds of the weights' publication
