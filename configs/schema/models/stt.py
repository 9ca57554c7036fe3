"""The schemas of `configs/stt/*.yaml`: one class per engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import ModelConfig
from configs.schema.models.upstream import UpstreamModelConfig


class WhisperGuards(ModelConfig):
    """Decoding of Whisper and its guards against hallucinations."""

    artefact: str  # name in the catalogue of weights
    translates: bool = True  # whether a multilingual model was trained to translate into English
    languages: tuple[str, ...] = ()  # trained languages; empty: all for which it has tokens
    retry_padding_s: float = Field(default=12.0, ge=0.2, le=30.0)  # silence after doubtful speech
    # Requests decoded together. On one thread, four together take 0.87 of the time of four calls.
    batch_size: int = Field(default=4, ge=1, le=64)
    retry_logprob: float = Field(default=-1.0, le=0)  # less likely texts are decoded again
    compression_ratio_threshold: float = Field(default=2.4, gt=1)  # above it a text is repetitive
    retry_temperature: float = Field(default=0.0, ge=0)  # temperature of the second decoding
    # Character error rate in percent, by language, from `benchmarks.stt.languages.scripts`.
    character_errors: dict[str, float] = {}


class WhisperConfig(WhisperGuards):
    """Whisper by CTranslate2, with an encoder window as long as the speech."""

    engine: Literal["whisper"]
    device: Literal["cpu"] = "cpu"  # on a GPU: the engine whisper_cuda
    compute_type: str = "int8"  # CTranslate2's name of a quantisation
    # On two cores one thread decodes a sentence as fast as two, so a second worker uses the other
    # core better.
    threads: int = Field(default=1, ge=1, le=64)  # threads per call
    # Calls in parallel: each worker is a process with its own copy of the weights, which starts
    # when it is first needed.
    workers: int = Field(default=2, ge=1, le=16)
    padding_s: float = Field(default=2.0, ge=0.2, le=10.0)  # silence encoded after the speech
    min_window_s: float = Field(default=6.0, ge=1.0, le=30.0)  # single words need more silence


class WholeWindowConfig(WhisperGuards):
    """Whisper with its whole window of 30 s, on a GPU."""

    batch_size: int = Field(default=16, ge=1, le=64)
    # The first decoding has the full window, so a repetition at temperature 0 changes nothing.
    retry_temperature: float = Field(default=0.4, ge=0)


class TransformersWhisperConfig(WholeWindowConfig):
    """Whisper by the transformers library. GPU profile."""

    engine: Literal["whisper_transformers"]
    device: str = "auto"  # in accelerate's notation; "auto" is the GPU if there is one
    dtype: Literal["bfloat16", "float16", "float32"] = "float16"


class CudaWhisperConfig(WholeWindowConfig):
    """Whisper by CTranslate2 on a GPU. GPU profile, with cuBLAS 12."""

    engine: Literal["whisper_cuda"]
    device: Literal["cuda", "cpu"] = "cuda"  # a CPU only for tests
    # CTranslate2's name of a quantisation. Its bfloat16 cannot be shared with torch.
    compute_type: Literal["float16", "int8_float16", "float32"] = "float16"


class OnnxAsrConfig(ModelConfig):
    """A recogniser in ONNX, greedily decoded on the CPU."""

    engine: Literal["onnx_asr"]
    artefact: str  # name in the catalogue of weights
    # Architecture and decoder, as onnx-asr names them; NeMo has TDT and RNN-T transducers, and CTC.
    architecture: Literal[
        "moonshine", "nemo-conformer-tdt", "nemo-conformer-rnnt", "nemo-conformer-ctc"
    ]
    quantization: Literal["int8"] | None = None  # suffix in the names of NeMo's files
    languages: tuple[str, ...] = Field(min_length=1)  # ISO 639-1 codes; it detects no language
    threads: int = Field(default=1, ge=1, le=64)  # threads per call
    workers: int = Field(default=2, ge=1, le=16)  # calls in parallel
    # Limit of Moonshine's texts. English has up to 6 tokens a second, other scripts twice as many.
    max_tokens_per_s: float = Field(default=13.0, gt=0)


class UpstreamSTTConfig(UpstreamModelConfig):
    """A recogniser behind an OpenAI-compatible address: vLLM, Speaches, this service, an API."""

    engine: Literal["openai_transcriptions"]
    languages: tuple[str, ...] = Field(min_length=1)  # ISO 639-1 codes that it transcribes
    translates: bool = False  # whether it has /audio/translations, into English
    # verbose_json contains the language and confidences and, with `words`, word times.
    response_format: Literal["verbose_json", "json"] = "verbose_json"
    words: bool = True  # requests word times; otherwise they are estimated
    # Whether live speech is sent before it ends, for interims; an API charges for each of them.
    interims: bool = False
    answer_s: float = Field(default=20.0, gt=0)  # timeout of a whole answer


STTConfig = Annotated[
    WhisperConfig
    | TransformersWhisperConfig
    | CudaWhisperConfig
    | OnnxAsrConfig
    | UpstreamSTTConfig,
    Field(discriminator="engine"),
]
