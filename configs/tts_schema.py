"""The shapes of `configs/tts/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.model_schema import ModelConfig


class SpeechModelConfig(ModelConfig):
    """What every text-to-speech configuration has."""

    tier: Literal["fast", "quality"]  # which of the two names in `GET /default-voices`


class ToneConfig(SpeechModelConfig):
    """A sine wave as long as the text: an engine with no weights, for tests."""

    engine: Literal["tone"]


TTSConfig = Annotated[ToneConfig, Field(discriminator="engine")]
