"""The shapes of `configs/llm/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.model_schema import ModelConfig


class LanguageModelConfig(ModelConfig):
    """What every chat configuration has."""

    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for


class EchoConfig(LanguageModelConfig):
    """Repeats the last message: an engine with no weights, for tests."""

    engine: Literal["echo"]
    context_tokens: int = Field(default=2048, ge=1)
    pause_s: float = Field(default=0.0, ge=0)  # before each word


class LlamaCppConfig(LanguageModelConfig):
    """A GGUF model on llama.cpp, inside the replica's process."""

    engine: Literal["llama_cpp"]
    weights: str  # artefact of the catalogue; its file is model.gguf
    context_tokens: int = Field(ge=256)  # of each stream; its memory is taken at the start
    parallel: int = Field(ge=1)  # streams generated together; more wait
    threads: int = Field(ge=1)
    batch_tokens: int = Field(default=256, ge=32)  # prompt tokens between two looks at cancellation
    cache_type: Literal["f16", "q8_0"] = "q8_0"  # of the keys and values; q8_0 takes half
    gpu_layers: int = Field(default=0, ge=0)


ChatConfig = Annotated[EchoConfig | LlamaCppConfig, Field(discriminator="engine")]
