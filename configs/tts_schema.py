"""The shapes of `configs/tts/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.model_schema import ModelConfig
from configs.strict import StrictModel

Category = Literal[
    "Entertainment/TV",
    "IVR/Call Center",
    "Finance/Banking",
    "Conversational",
    "Medical/Healthcare",
    "Religious/Spiritual",
    "Corporate/Business",
    "Government/Public Sector",
    "Social Media",
    "Documentary",
    "Travel/Tourism",
    "Kids/Children",
    "Legal",
    "Audiobook",
    "Gaming",
    "Podcast",
    "Advertisement",
    "E-Learning",
    "News/Journalism",
    "Sports",
    "Animation",
    "Professional Cloning",
]
"""The use cases that the voice list may name."""


class VoiceConfig(StrictModel):
    """A voice that the engine offers."""

    key: str  # the engine's own name of it; unique within the engine
    name: str  # display name
    language: str = Field(pattern=r"^[a-z]{2}$")  # ISO 639-1 code
    gender: Literal["male", "female"]
    accent: Literal["American", "British", "Indian", "Neutral"] = "Neutral"
    description: str | None = None
    categories: tuple[Category, ...] = ()


class SpeechModelConfig(ModelConfig):
    """What every text-to-speech configuration has."""

    tier: Literal["fast", "quality"]  # which of the two names in `GET /default-voices`
    voices: tuple[VoiceConfig, ...] = Field(min_length=1)


class ToneConfig(SpeechModelConfig):
    """A sine wave as long as the text: an engine with no weights, for tests."""

    engine: Literal["tone"]


TTSConfig = Annotated[ToneConfig, Field(discriminator="engine")]
