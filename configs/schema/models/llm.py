"""The schemas of `configs/llm/*.yaml`: one class per engine, chosen by `engine`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from configs.schema.base import ModelConfig


class LanguageModelConfig(ModelConfig):
    """The common fields of chat configurations."""

    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for


class LlamaCppConfig(LanguageModelConfig):
    """A GGUF model on llama.cpp, inside the replica's process."""

    engine: Literal["llama_cpp"]
    weights: str  # artefact of the catalogue; its file is model.gguf
    context_tokens: int = Field(ge=256)  # per stream; the memory is allocated at the start
    parallel: int = Field(ge=1)  # streams generated together; more streams wait
    threads: int = Field(ge=1)
    batch_tokens: int = Field(default=256, ge=32)  # prompt tokens between checks for cancellation
    cache_type: Literal["f16", "q8_0"] = "q8_0"  # of keys and values; q8_0 takes half the memory
    chat_template: str | None = None  # a file in this folder with support for tools; else no tools
    gpu_layers: int = Field(default=0, ge=0)


class TransformersChatConfig(LanguageModelConfig):
    """A model on the transformers library, with its continuous batching. GPU profile."""

    engine: Literal["transformers"]
    weights: str  # artefact with the files of the hub's repository
    gguf_file: str | None = None  # the file of the weights, if they are a GGUF
    context_tokens: int = Field(ge=64)  # per stream
    cache_tokens: int = Field(ge=128)  # KV cache of all streams together, allocated at the start
    page_tokens: int = Field(default=256, ge=4)  # allocation unit of the cache
    parallel: int = Field(default=64, ge=1)  # streams generated together; more streams wait
    batch_tokens: int = Field(default=1024, ge=16)  # of prompts and streams in one step
    share_prefixes: bool = True  # prefix caching: pages of an earlier prompt are reused
    quantization: Literal["nf4", "none"] = "nf4"  # by bitsandbytes
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"  # of the rest, and of the cache
    device: str = "auto"  # in accelerate's notation; "auto" is the GPU if there is one
    # Flash attention needs packages that are not in the lock file.
    attention: Literal["sdpa", "flash_attention_2", "flash_attention_3"] = "sdpa"
    tools: Literal["hermes", "none"] = "none"  # notation of tool calls; hermes: JSON between tags
    tools_argument: str = "tools"  # their name in the chat template

    @model_validator(mode="after")
    def _a_whole_context_fits_the_cache(self) -> Self:
        if self.cache_tokens < self.context_tokens + self.page_tokens:
            raise ValueError("cache_tokens must hold context_tokens and a page")
        return self


ChatConfig = Annotated[LlamaCppConfig | TransformersChatConfig, Field(discriminator="engine")]
