"""The shapes of `configs/llm/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.model_schema import ModelConfig


class LanguageModelConfig(ModelConfig):
    """What every chat configuration has."""

    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for


class EchoConfig(LanguageModelConfig):
    """Repeats the last message: an engine with no weights, for tests."""

    engine: Literal["echo"]
    context_tokens: int = Field(default=2048, ge=1)
    pause_s: float = Field(default=0.0, ge=0)  # before each word


ChatConfig = Annotated[EchoConfig, Field(discriminator="engine")]
