"""Common fields of configurations for models of other services."""

from typing import Annotated

from pydantic import Field, StringConstraints

from configs.schema.base import ModelConfig


class UpstreamModelConfig(ModelConfig):
    """A model behind an OpenAI-compatible address."""

    # Base URL before the path of the operation, such as /chat/completions; no password or query.
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
    model: str  # the service's name of the model
    key_env: str | None = None  # the environment variable with the API key
    ca_file: str | None = None  # certificate authorities in addition to the system's
    parallel: int = Field(default=32, ge=1)  # simultaneous answers; more requests wait
    connect_s: float = Field(default=5.0, gt=0)
