"""Base classes of configuration models."""

from pydantic import BaseModel, ConfigDict, Field


class StrictModel(BaseModel):
    """Immutable; refuses unknown keys, so that a typo in a YAML fails before a replica starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(StrictModel):
    """The common fields of each YAML under `configs/{tts,stt,llm,embedding}`."""

    id: str  # the model's name in requests, such as "svc/slm-135m-q4"
    aliases: tuple[str, ...] = ()
    owned_by: str  # the publisher of the weights
    created: int  # when the weights were published, Unix seconds
    description: str | None = None  # notes for users, shown in lists
    # GPU memory that the model takes (10^9 bytes), measured or computed. The model is loaded there
    # only if this much is free. Default: the size of its weights.
    gpu_memory_gb: float | None = Field(default=None, gt=0)
