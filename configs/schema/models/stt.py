"""The shapes of `configs/stt/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import ModelConfig


class ScriptedConfig(ModelConfig):
    """Answers from a script: an engine with no weights, for tests."""

    engine: Literal["scripted"]
    text: str = Field(default="the quick brown fox", pattern=r"\S")
    max_concurrency: int = Field(default=2, ge=1, le=16, alias="lanes")
    delay_s: float = Field(default=0.0, ge=0, le=10)  # what every call takes
    languages: tuple[str, ...] = ("en", "de", "es", "fr", "hi", "it", "nl", "pl", "pt")


class WhisperGuards(ModelConfig):
    """How texts of Whisper are decoded, and what makes them doubtful."""

    artefact: str  # name in the catalogue of weights
    retry_padding_s: float = Field(default=12.0, ge=0.2, le=30.0)  # of a doubtful text
    # Requests decoded together. Measured on one thread: four take 0.87 of the time of one by one.
    batch_size: int = Field(default=4, ge=1, le=64)
    max_tokens_per_s: float = Field(default=30.0, gt=0)  # scripts of many tokens too
    retry_logprob: float = Field(default=-1.0, le=0)  # less likely texts are tried again
    compression_ratio_threshold: float = Field(default=2.4, gt=1)  # above it a text repeats itself
    fallback_temperatures: tuple[float, ...] = (0.0, 0.4, 0.8)  # of the second try


class WhisperConfig(WhisperGuards):
    """Whisper by CTranslate2, with an encoder window as long as the speech."""

    engine: Literal["whisper"]
    device: Literal["cpu", "cuda"] = "cpu"
    compute_type: str = "int8"  # CTranslate2's name of a quantisation
    # Measured: of two cores, one thread decodes a sentence as soon as two together do, so the
    # second core is worth more as another worker.
    threads: int = Field(default=1, ge=1, le=64)  # of one call
    workers: int = Field(default=2, ge=1, le=16)  # calls side by side
    window: Literal["short", "full"] = "short"  # "full" always encodes 30 s
    padding_s: float = Field(default=2.0, ge=0.2, le=10.0)  # silence encoded after the speech
    min_window_s: float = Field(default=6.0, ge=1.0, le=30.0)  # single words need more silence


class TransformersWhisperConfig(WhisperGuards):
    """Whisper by the transformers library, with its whole window. GPU profile."""

    engine: Literal["whisper_transformers"]
    batch_size: int = Field(default=16, ge=1, le=64)
    device: str = "auto"  # as accelerate names them; "auto" is the GPU where there is one
    dtype: Literal["bfloat16", "float16", "float32"] = "float16"
    # The window is whole at the first try, so another one of the same kind would change nothing.
    fallback_temperatures: tuple[float, ...] = (0.4, 0.8)


STTConfig = Annotated[
    ScriptedConfig | WhisperConfig | TransformersWhisperConfig, Field(discriminator="engine")
]
