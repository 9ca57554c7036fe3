"""The schemas of `configs/stt/*.yaml`: one class per engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import ModelConfig
from configs.schema.models.upstream import UpstreamModelConfig


class WhisperGuards(ModelConfig):
    """Decoding of Whisper and its guards against hallucinations."""

    artefact: str  # name in the catalogue of weights
    translates: bool = True  # whether a multilingual model was trained to, into English
    languages: tuple[str, ...] = ()  # that it was trained for; empty: all that its tokens name
    retry_padding_s: float = Field(default=12.0, ge=0.2, le=30.0)  # silence, for a doubtful text
    # Requests decoded together. Measured on one thread: four take 0.87 of the time of one by one.
    batch_size: int = Field(default=4, ge=1, le=64)
    retry_logprob: float = Field(default=-1.0, le=0)  # less likely texts are decoded again
    compression_ratio_threshold: float = Field(default=2.4, gt=1)  # above it a text is repetitive
    retry_temperature: float = Field(default=0.0, ge=0)  # of the second decoding
    # Percent of the characters of plain sentences, by language: `benchmarks.stt.languages.scripts`.
    character_errors: dict[str, float] = {}


class WhisperConfig(WhisperGuards):
    """Whisper by CTranslate2, with an encoder window as long as the speech."""

    engine: Literal["whisper"]
    device: Literal["cpu", "cuda"] = "cpu"
    compute_type: str = "int8"  # CTranslate2's name of a quantisation
    # Measured on two cores: one thread decodes a sentence as fast as two, so the second core is
    # used better by another worker.
    threads: int = Field(default=1, ge=1, le=64)  # of one call
    # Calls in parallel: each worker is a process with its own copy of the weights, which starts
    # when it is first needed.
    workers: int = Field(default=2, ge=1, le=16)
    padding_s: float = Field(default=2.0, ge=0.2, le=10.0)  # silence encoded after the speech
    min_window_s: float = Field(default=6.0, ge=1.0, le=30.0)  # single words need more silence


class TransformersWhisperConfig(WhisperGuards):
    """Whisper by the transformers library, with its whole window. GPU profile."""

    engine: Literal["whisper_transformers"]
    batch_size: int = Field(default=16, ge=1, le=64)
    device: str = "auto"  # in accelerate's notation; "auto" is the GPU if there is one
    dtype: Literal["bfloat16", "float16", "float32"] = "float16"
    # The first decoding has the full window, so a repetition at temperature 0 changes nothing.
    retry_temperature: float = Field(default=0.4, ge=0)


class OnnxAsrConfig(ModelConfig):
    """A recogniser in ONNX, greedily decoded on the CPU."""

    engine: Literal["onnx_asr"]
    artefact: str  # name in the catalogue of weights
    # NeMo's by the names of onnx-asr: TDT and RNN-T transducers, and CTC.
    architecture: Literal[
        "moonshine", "nemo-conformer-tdt", "nemo-conformer-rnnt", "nemo-conformer-ctc"
    ]
    quantization: Literal["int8"] | None = None  # of the files of NeMo's networks, in their names
    languages: tuple[str, ...] = Field(min_length=1)  # ISO 639-1 codes; it does not say which
    threads: int = Field(default=1, ge=1, le=64)  # of one call
    workers: int = Field(default=2, ge=1, le=16)  # calls in parallel
    # Of Moonshine. English has up to 6; scripts other than the Latin one have twice as many.
    max_tokens_per_s: float = Field(default=13.0, gt=0)


class UpstreamSTTConfig(UpstreamModelConfig):
    """A recogniser behind an OpenAI-compatible address: vLLM, Speaches, this service, an API."""

    engine: Literal["openai_transcriptions"]
    languages: tuple[str, ...] = Field(min_length=1)  # ISO 639-1 codes that it transcribes
    translates: bool = False  # whether it has /audio/translations, into English
    # The most that it has: verbose_json has its languages and confidences, and with `words` times.
    response_format: Literal["verbose_json", "json"] = "verbose_json"
    words: bool = True  # of verbose_json; else their times are estimated
    # Whether live speech is sent before it ends, for interims; an API charges each.
    interims: bool = False
    answer_s: float = Field(default=20.0, gt=0)  # from a request to the end of its answer


STTConfig = Annotated[
    WhisperConfig | TransformersWhisperConfig | OnnxAsrConfig | UpstreamSTTConfig,
    Field(discriminator="engine"),
]
