"""The shapes of `configs/llm/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from configs.schema.base import ModelConfig


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
    chat_template: str | None = None  # a file beside this one, which shows tools; else no tools
    gpu_layers: int = Field(default=0, ge=0)


class TransformersChatConfig(LanguageModelConfig):
    """A model on the transformers library, with its continuous batching. GPU profile."""

    engine: Literal["transformers"]
    weights: str  # artefact with the files of the hub's repository
    gguf_file: str | None = None  # its file of weights, where they are a GGUF
    context_tokens: int = Field(ge=64)  # of each stream
    cache_tokens: int = Field(ge=128)  # keys and values of all streams together, taken at the start
    page_tokens: int = Field(default=256, ge=4)  # how the cache is given out
    parallel: int = Field(default=64, ge=1)  # streams generated together; more wait
    batch_tokens: int = Field(default=1024, ge=16)  # of prompts and streams in one step
    share_prefixes: bool = True  # pages of a prompt that was read before are not read again
    quantization: Literal["nf4", "none"] = "nf4"  # by bitsandbytes
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"  # of the rest, and of the cache
    device: str = "auto"  # as accelerate names them; "auto" is the GPU where there is one
    # Flash attention wants packages that the lock does not have, and brings CUDA graphs with it.
    attention: Literal["sdpa", "flash_attention_2", "flash_attention_3"] = "sdpa"
    tools: Literal["hermes", "none"] = "none"  # how the model writes calls: JSON between tags
    tools_argument: str = "tools"  # what the chat template calls them

    @model_validator(mode="after")
    def _a_whole_context_fits_the_cache(self) -> Self:
        if self.cache_tokens < self.context_tokens + self.page_tokens:
            raise ValueError("cache_tokens must hold context_tokens and a page")
        return self


ChatConfig = Annotated[
    EchoConfig | LlamaCppConfig | TransformersChatConfig, Field(discriminator="engine")
]
