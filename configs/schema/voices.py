"""The shapes of `configs/voices.yaml` and `configs/openai.yaml`: names of voices and models."""

from typing import Literal

from pydantic import Field

from configs.schema.base import StrictModel


class VoiceRef(StrictModel):
    """A voice by the names that its engine gives it."""

    engine: str  # name in the registry, such as "kokoro"
    key: str  # VoiceInfo.key


class VoicesConfig(StrictModel):
    """The default voice of each language."""

    defaults: dict[str, VoiceRef] = Field(min_length=1)  # ISO 639-1 code to voice


Tier = Literal["fast", "quality"]


class OpenAIVoice(StrictModel):
    """A voice of OpenAI's, and the voices here that stand for it."""

    gender: Literal["male", "female"]  # of the voice that stands in where none of these can
    fast: VoiceRef | None = None
    quality: VoiceRef | None = None

    def refs(self, tier: Tier | None) -> list[VoiceRef]:
        """Its voices, that of the tier first."""
        both = [self.fast, self.quality] if tier != "quality" else [self.quality, self.fast]
        return [one for one in both if one is not None]


class OpenAIConfig(StrictModel):
    """Names that OpenAI's clients send without being asked."""

    speech_models: dict[str, Tier]
    transcription_models: list[str] = Field(min_length=1)
    voices: dict[str, OpenAIVoice] = Field(min_length=1)
