"""The shapes of `configs/tts/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from configs.load import load_yaml
from configs.schema.base import ModelConfig, StrictModel

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
    # Seconds of work for a second of speech. The slower, the shorter the pieces that begin a
    # stream; the tone engine really takes so long.
    real_time_factor: float = Field(default=0.0, ge=0.0)
    voices: tuple[VoiceConfig, ...] = Field(min_length=1)


class ToneConfig(SpeechModelConfig):
    """A sine wave as long as the text: an engine with no weights, for tests."""

    engine: Literal["tone"]


class HibariConfig(SpeechModelConfig):
    """English voices whose weights come with the library; `key` is the library's name of one."""

    engine: Literal["hibari"]
    threads: int = Field(default=1, ge=1)


class KokoroVoiceConfig(VoiceConfig):
    """A voice of Kokoro; several may share one pack, each for its own language."""

    pack: str | None = None  # file name without .bin; the key unless given


class KokoroConfig(SpeechModelConfig):
    """Kokoro-82M."""

    engine: Literal["kokoro"]
    weights: str  # artefact that holds kokoro.onnx
    voice_weights: str  # artefact that holds voices/*.bin
    threads: int = Field(default=2, ge=1)
    voices: tuple[KokoroVoiceConfig, ...] = Field(min_length=1)


class EspeakVoiceConfig(VoiceConfig):
    """A voice of espeak-ng."""

    espeak: str  # its name there, with a variant after a plus, such as "ta+f3"


class EspeakConfig(SpeechModelConfig):
    """espeak-ng's own synthesis."""

    engine: Literal["espeak"]
    voices: tuple[EspeakVoiceConfig, ...] = Field(min_length=1)


class WeightsVoiceConfig(VoiceConfig):
    """A voice with weights of its own."""

    weights: str  # artefact: model.onnx and model.onnx.json, or the files of the hub's repository


class VitsConfig(SpeechModelConfig):
    """VITS voices in Piper's format; all of one sample rate."""

    engine: Literal["vits"]
    threads: int = Field(default=2, ge=1)
    voices: tuple[WeightsVoiceConfig, ...] = Field(min_length=1)


class CsmConfig(SpeechModelConfig):
    """CSM-1B on the transformers library: only voices that workspaces have made. GPU profile."""

    engine: Literal["csm"]
    weights: str  # artefact with the files of the hub's repository
    languages: tuple[str, ...] = Field(min_length=1)  # ISO 639-1 codes that it speaks
    device: str = "auto"  # as accelerate names them; "auto" is the GPU where there is one
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    temperature: float = Field(default=0.9, gt=0.0)  # at a stability of 1
    top_k: int = Field(default=50, ge=1)
    voices: tuple[VoiceConfig, ...] = Field(default=(), max_length=0)


class MmsConfig(SpeechModelConfig):
    """VITS voices of MMS, one a language, on the transformers library. GPU profile.

    All are of one sample rate.
    """

    engine: Literal["mms"]
    device: str = "auto"  # as accelerate names them; "auto" is the GPU where there is one
    voices: tuple[WeightsVoiceConfig, ...] = Field(min_length=1)


TTSConfig = Annotated[
    ToneConfig | HibariConfig | KokoroConfig | EspeakConfig | VitsConfig | CsmConfig | MmsConfig,
    Field(discriminator="engine"),
]


def engine_of(name: str) -> str:
    """The engine of the model of `configs/<name>.yaml`. Raises ValidationError."""
    config: TTSConfig = load_yaml(TypeAdapter(TTSConfig), name)
    return config.engine
