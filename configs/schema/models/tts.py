"""The schemas of `configs/tts/*.yaml`: one class per engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from configs.schema.base import ModelConfig, StrictModel
from configs.schema.models.upstream import UpstreamModelConfig

_CATEGORIES = (
    "Entertainment/TV|IVR/Call Center|Finance/Banking|Conversational|Medical/Healthcare"
    "|Religious/Spiritual|Corporate/Business|Government/Public Sector|Social Media"
    "|Documentary|Travel/Tourism|Kids/Children|Legal|Audiobook|Gaming|Podcast|Advertisement"
    "|E-Learning|News/Journalism|Sports|Animation|Professional Cloning"
)
Category = Annotated[str, Field(pattern=f"^({_CATEGORIES})$")]
"""A use case of a voice in the voice list."""


class VoiceConfig(StrictModel):
    """A voice of an engine."""

    key: str  # the engine's own name of the voice; unique within the engine
    name: str  # display name
    language: str = Field(pattern=r"^[a-z]{2}$")  # ISO 639-1 code
    gender: Literal["male", "female"]
    accent: Literal["American", "British", "Indian", "Neutral"] = "Neutral"
    description: str | None = None
    categories: tuple[Category, ...] = ()
    is_native: bool = True  # false: the timbre is that of another language's voice
    # Character error rate in percent, by a recogniser (benchmarks/tts/languages.md).
    character_errors: float | None = None


class SpeechModelConfig(ModelConfig):
    """The common fields of text-to-speech configurations."""

    tier: Literal["fast", "quality"]  # the tier in `GET /default-voices`
    # Seconds of work per second of speech. Slower engines get shorter first chunks of a stream.
    real_time_factor: float = Field(default=0.0, ge=0.0)
    voices: tuple[VoiceConfig, ...] = Field(min_length=1)


class HibariConfig(SpeechModelConfig):
    """English voices whose weights are in the library; `key` is the library's name of a voice."""

    engine: Literal["hibari"]
    threads: int = Field(default=1, ge=1)


class KokoroVoiceConfig(VoiceConfig):
    """A voice of Kokoro; several voices, one per language, may share a pack."""

    pack: str | None = None  # file name without .bin; by default the key


class KokoroConfig(SpeechModelConfig):
    """Kokoro-82M."""

    engine: Literal["kokoro"]
    weights: str  # artefact with kokoro.onnx
    voice_weights: str  # artefact with voices/*.bin
    threads: int = Field(default=2, ge=1)
    voices: tuple[KokoroVoiceConfig, ...] = Field(min_length=1)


class EspeakVoiceConfig(VoiceConfig):
    """A voice of espeak-ng."""

    espeak: str  # espeak-ng's name of the voice, with a variant after a plus, such as "ta+f3"


class EspeakConfig(SpeechModelConfig):
    """espeak-ng's own synthesis."""

    engine: Literal["espeak"]
    voices: tuple[EspeakVoiceConfig, ...] = Field(min_length=1)


class WeightsVoiceConfig(VoiceConfig):
    """A voice with weights of its own."""

    weights: str  # artefact: model.onnx and model.onnx.json


class VitsConfig(SpeechModelConfig):
    """VITS voices in Piper's format, all with the same sample rate."""

    engine: Literal["vits"]
    threads: int = Field(default=2, ge=1)
    voices: tuple[WeightsVoiceConfig, ...] = Field(min_length=1)


class CsmConfig(SpeechModelConfig):
    """CSM-1B on the transformers library: custom voices only. GPU profile."""

    engine: Literal["csm"]
    weights: str  # artefact with the files of the hub's repository
    languages: tuple[str, ...] = Field(min_length=1)  # ISO 639-1 codes that it speaks
    device: str = "auto"  # as accelerate names them; "auto" is the GPU where there is one
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    temperature: float = Field(default=0.9, gt=0.0)  # at a stability of 1
    top_k: int = Field(default=50, ge=1)
    parallel: int = Field(default=4, ge=1, le=4)  # sentences per step; further ones take turns
    voices: tuple[VoiceConfig, ...] = Field(default=(), max_length=0)


class PocketConfig(SpeechModelConfig):
    """Pocket TTS on the transformers library, in one language. It also runs on a CPU; the GPU
    profile has its libraries."""

    engine: Literal["pocket"]
    weights: str  # artefact with Kyutai's model.safetensors and tokenizer.model
    voice_weights: str  # artefact with a file KEY.safetensors of each voice
    device: str = "auto"  # as torch names them; "auto" is the GPU where there is one
    threads: int = Field(default=2, ge=1)  # threads of the whole process, on a CPU
    temperature: float = Field(default=0.7, ge=0.0)  # at a stability of 1


class UpstreamVoiceConfig(VoiceConfig):
    """A voice of another service."""

    voice: str | None = None  # the service's name of the voice; by default the key


class UpstreamTTSConfig(UpstreamModelConfig, SpeechModelConfig):
    """A voice service behind an OpenAI-compatible address: Chatterbox, F5, Fish, Kokoro, an API."""

    engine: Literal["openai_speech"]
    voices: tuple[UpstreamVoiceConfig, ...] = Field(min_length=1)
    response_format: Literal["pcm", "wav"] = "pcm"  # 16 bits, mono
    sample_rate: int = Field(default=24_000, ge=8_000, le=48_000)  # Hz
    speed: bool = False  # whether the service changes the tempo itself
    crosses_languages: bool = False  # whether each voice speaks the languages of all voices
    fields: dict[str, JsonValue] = {}  # further fields of each request's body
    first_audio_s: float = Field(default=20.0, gt=0)  # timeout of the first audio
    idle_s: float = Field(default=10.0, gt=0)  # timeout of each later piece


TTSConfig = Annotated[
    HibariConfig
    | KokoroConfig
    | EspeakConfig
    | VitsConfig
    | CsmConfig
    | PocketConfig
    | UpstreamTTSConfig,
    Field(discriminator="engine"),
]
