"""The shapes of `configs/stt/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.model_schema import ModelConfig


class ScriptedConfig(ModelConfig):
    """Answers from a script: an engine with no weights, for tests."""

    engine: Literal["scripted"]
    text: str = Field(default="the quick brown fox", pattern=r"\S")
    languages: tuple[str, ...] = ("en", "de", "es", "fr", "hi", "it", "nl", "pl", "pt")


STTConfig = Annotated[ScriptedConfig, Field(discriminator="engine")]
