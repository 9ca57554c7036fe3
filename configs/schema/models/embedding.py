"""The schema of `configs/embedding/*.yaml`."""

from typing import Literal

from pydantic import Field

from configs.schema.base import ModelConfig


class MiniLMConfig(ModelConfig):
    """A MiniLM sentence encoder on ONNX Runtime."""

    engine: Literal["minilm"]
    artefact: str  # name in the catalogue of weights
    vocabulary: str  # artefact with the token ids that requests may have instead of text
    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for
    window_tokens: int = Field(default=256, ge=8, le=512)  # per input, with [CLS] and [SEP]
    threads: int = Field(default=1, ge=1, le=64)  # per batch; two batches run in parallel
