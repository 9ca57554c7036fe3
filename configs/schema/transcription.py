"""The schemas of `configs/{transcription,subtitles}.yaml` (files) and `configs/listening.yaml`
(live audio)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from configs.load import load_yaml
from configs.schema.base import StrictModel

ProfileName = Literal["general", "phone_call", "meeting", "medical"]


class DecodingProfile(StrictModel):
    """Voice detection and decoding of one kind of recording."""

    band_pass_hz: tuple[float, float] | None = None
    vad_threshold: float = Field(default=0.5, gt=0, lt=1)  # probability that starts speech
    min_speech_ms: int = Field(default=100, ge=0)  # shorter stretches are ignored
    min_silence_ms: int = Field(default=500, ge=0)  # a shorter pause does not end speech
    beam_size: int = Field(default=1, ge=1, le=10)
    terms: dict[str, tuple[str, ...]] = {}  # words to expect, by language


class TranscriptionConfig(StrictModel):
    """The decoding profiles."""

    profiles: dict[ProfileName, DecodingProfile]


def load_profiles() -> dict[ProfileName, DecodingProfile]:
    """Loads the profiles of `configs/transcription.yaml`."""
    return load_yaml(TranscriptionConfig, "transcription").profiles


class SubtitleWords(StrictModel):
    """Words that lines of subtitles keep with a neighbour: lower case, separated by spaces."""

    belong_to_next: dict[str, str]  # by language
    belong_to_previous: dict[str, str]


class ProfanityConfig(StrictModel):
    """Words that transcripts may mask, in lower case."""

    words: dict[str, frozenset[str]]  # by language


class EndpointingConfig(StrictModel):
    """Endpointing: from probabilities of speech to utterances."""

    speech_threshold: float = Field(gt=0, lt=1)  # probability from which a frame begins speech
    silence_threshold: float = Field(gt=0, lt=1)  # below it a frame within speech is silence
    start_frames: int = Field(ge=1, le=10)  # consecutive frames of speech that begin an utterance
    likely_end_ms: int = Field(ge=60, le=290)  # silence after which speculative decoding begins
    pre_roll_ms: int = Field(ge=0, le=1000)  # audio kept before the first frame: soft onsets
    max_utterance_s: float = Field(ge=2, le=29)  # Whisper's window is 30 s
    cut_search_s: float = Field(ge=0.5)  # part at the end in which to find a pause to cut at

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.silence_threshold > self.speech_threshold:
            raise ValueError("silence_threshold must not be over speech_threshold")
        if self.cut_search_s > self.max_utterance_s / 2:
            raise ValueError("cut_search_s must be at most half of max_utterance_s")
        return self


class HallucinationConfig(StrictModel):
    """The filter of hallucinations. A phantom is a phrase that Whisper writes for silence."""

    min_speech_ms: int = Field(ge=0)  # an utterance with less speech is a click, and not decoded
    min_language_probability: float = Field(ge=0, le=1)  # minimum for the best requested language
    doubtful_confidence: float = Field(ge=0, le=1)  # a phantom with less confidence…
    doubtful_speech_ms: int = Field(ge=0)  # …and less speech than this is rejected
    phantoms: tuple[str, ...]


class ListeningLimits(StrictModel):
    """Limits of one session."""

    backlog_s: float = Field(gt=0)  # audio of utterances that wait for transcription
    max_speed: float = Field(ge=1)  # seconds of audio per second, averaged over speed_window_s
    speed_window_s: float = Field(gt=0)
    start_timeout_s: float = Field(gt=0)
    audio_timeout_s: float = Field(gt=0)
    decode_timeout_s: float = Field(gt=0)  # per utterance
    retry_within_s: float = Field(ge=0)  # time after the end for a second decoding


class ListeningConfig(StrictModel):
    """Settings of live transcription."""

    vad: str  # name of a configuration, such as vad/silero
    endpointing: EndpointingConfig
    rejection: HallucinationConfig
    limits: ListeningLimits
