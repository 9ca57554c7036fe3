"""The shapes of `configs/stt/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.model_schema import ModelConfig


class ScriptedConfig(ModelConfig):
    """Answers from a script: an engine with no weights, for tests."""

    engine: Literal["scripted"]


STTConfig = Annotated[ScriptedConfig, Field(discriminator="engine")]
