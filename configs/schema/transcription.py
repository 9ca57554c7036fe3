"""The shapes of `configs/transcription.yaml` (files) and `configs/listening.yaml` (live audio)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from configs.load import load_yaml
from configs.schema.base import StrictModel

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


class EndpointingConfig(StrictModel):
    """From probabilities of speech to utterances."""

    speech_threshold: float = Field(gt=0, lt=1)  # from here on a frame is speech
    silence_threshold: float = Field(gt=0, lt=1)  # under it a frame of running speech is silence
    start_frames: int = Field(ge=1, le=10)  # consecutive frames of speech that begin an utterance
    likely_end_ms: int = Field(ge=60, le=290)  # silence after which decoding begins on suspicion
    pre_roll_ms: int = Field(ge=0, le=1000)  # kept before the first frame: soft beginnings
    max_utterance_s: float = Field(ge=2, le=29)  # Whisper's window is 30 s
    cut_search_s: float = Field(ge=0.5)  # at the end of a longer one: where to look for a pause

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.silence_threshold > self.speech_threshold:
            raise ValueError("silence_threshold must not be over speech_threshold")
        if self.cut_search_s > self.max_utterance_s / 2:
            raise ValueError("cut_search_s must be at most half of max_utterance_s")
        return self


class HallucinationConfig(StrictModel):
    """Which texts are not believed."""

    min_speech_ms: int = Field(ge=0)  # an utterance with less speech is a click, and not decoded
    min_language_probability: float = Field(ge=0, le=1)  # of the best of the languages asked for
    doubtful_confidence: float = Field(ge=0, le=1)  # a phantom under it…
    doubtful_speech_ms: int = Field(ge=0)  # …with less speech than this is rejected
    phantoms: tuple[str, ...]


class ListeningLimits(StrictModel):
    """Limits of one session."""

    backlog_s: float = Field(gt=0)  # audio of utterances that wait for their text
    max_speed: float = Field(ge=1)  # seconds of audio a second, over speed_window_s
    speed_window_s: float = Field(gt=0)
    start_timeout_s: float = Field(gt=0)
    audio_timeout_s: float = Field(gt=0)
    decode_timeout_s: float = Field(gt=0)  # of one utterance
    retry_within_s: float = Field(ge=0)  # of the end; later no doubtful text is decoded again


class ListeningConfig(StrictModel):
    """Live transcription."""

    vad: str  # name of a configuration, such as vad/silero
    endpointing: EndpointingConfig
    rejection: HallucinationConfig
    limits: ListeningLimits
