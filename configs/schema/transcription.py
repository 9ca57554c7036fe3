"""The shape of `configs/transcription.yaml`: the profiles that `model` of `POST /stt` selects."""

from typing import Literal

from pydantic import Field

from configs.load import load_yaml
from configs.schema.strict import StrictModel

ProfileName = Literal["general", "phone_call", "meeting", "medical"]


class DecodingProfile(StrictModel):
    """How one kind of recording is heard."""

    band_pass_hz: tuple[float, float] | None = None
    vad_threshold: float = Field(default=0.5, gt=0, lt=1)  # probability that starts speech
    min_speech_ms: int = Field(default=100, ge=0)  # shorter sounds are not speech
    min_silence_ms: int = Field(default=500, ge=0)  # a shorter pause does not end speech
    beam_size: int = Field(default=1, ge=1, le=10)
    terms: dict[str, tuple[str, ...]] = {}  # words to expect, by language


class TranscriptionConfig(StrictModel):
    """The decoding profiles."""

    profiles: dict[ProfileName, DecodingProfile]


def load_profiles() -> dict[ProfileName, DecodingProfile]:
    """The profiles of `configs/transcription.yaml`."""
    return load_yaml(TranscriptionConfig, "transcription").profiles
