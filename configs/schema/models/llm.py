"""The schemas of `configs/llm/*.yaml`: one class per engine, chosen by `engine`."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from configs.schema.base import ModelConfig, StrictModel
from configs.schema.models.upstream import UpstreamModelConfig


class LanguageModelConfig(ModelConfig):
    """The common fields of chat configurations."""

    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for
    # The id or alias of the model that answers while this one is down or overloaded.
    fallback: str | None = None


class LocalChatConfig(LanguageModelConfig):
    """The common fields of models on this machine."""

    # Defaults of requests.
    temperature: float = Field(default=0.7, ge=0, le=2)
    top_p: float = Field(default=0.8, gt=0, le=1)
    ends_loops: bool = False  # ends an answer that repeats itself, as small models do endlessly


class GgufConfig(StrictModel):
    """The file of a model for llama.cpp."""

    weights: str  # artefact of the catalogue, whose file is model.gguf; or the path of a GGUF
    unverified: bool = False  # the file at that path is read without comparing a digest

    @field_validator("weights")
    @classmethod
    def _is_a_plain_path(cls, weights: str) -> str:
        return weights.removeprefix("file://")

    @model_validator(mode="after")
    def _own_files_are_declared(self) -> Self:
        if self.weights.startswith("/") != self.unverified:
            raise ValueError("weights: a path needs unverified: true, an artefact forbids it")
        return self


class DraftConfig(GgufConfig):
    """Draft model of speculative decoding, with the vocabulary of the large model. The large model
    checks all drafted tokens in one step, and keeps those that it would choose."""

    most_tokens: int = Field(default=3, ge=1, le=64)  # per draft; llama.cpp's own default
    least_probability: float = Field(default=0.0, ge=0, le=1)  # a less likely token ends the draft


class LlamaCppConfig(LocalChatConfig, GgufConfig):
    """A GGUF model on llama.cpp, inside the replica's process."""

    engine: Literal["llama_cpp"]
    draft: DraftConfig | None = None
    # Tokens per stream, allocated at the start. 0: as many as fit in free memory.
    context_tokens: Literal[0] | Annotated[int, Field(ge=256)] = 0
    parallel: int = Field(default=0, ge=0)  # streams generated together; more wait. 0: by memory
    threads: int = Field(default=0, ge=0)  # 0: as many as cores
    batch_tokens: int = Field(default=256, ge=32)  # prompt tokens between checks for cancellation
    # Type of cached keys and values; q8_0 halves the memory, but prompts take 1.6 times as long.
    cache_type: Literal["f16", "q8_0"] = "f16"
    # Memory for prompts of chats that lost their slot, at most a quarter of free memory.
    kept_chats_mb: int = Field(default=512, ge=0)
    # A chat template in this folder that supports tools. Without it, the GGUF's template is used,
    # with tools only if it writes their calls like Hermes models.
    chat_template: str | None = None
    reviews_calls: bool = False  # drops calls whose arguments a small model invented
    # Layers on a GPU. They need another build of xllamacpp: PyPI's for Linux uses only the CPU.
    gpu_layers: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _memory_of_gpus_is_given(self) -> Self:
        if self.gpu_layers and not (self.context_tokens and self.parallel):
            raise ValueError("gpu_layers needs context_tokens and parallel, too")
        return self


class HubChatConfig(LocalChatConfig):
    """The fields that models with weights in files of the hub share. GPU profile."""

    weights: str  # artefact with the files of the hub's repository
    context_tokens: int = Field(ge=64)  # per stream
    parallel: int = Field(default=64, ge=1)  # streams generated together; more streams wait
    tools: Literal["hermes", "none"] = "none"  # notation of tool calls; hermes: JSON between tags
    tools_argument: str = "tools"  # the chat template's variable for the tools
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"  # unquantised parts and the cache


class TransformersChatConfig(HubChatConfig):
    """A model on the transformers library, with its continuous batching."""

    engine: Literal["transformers"]
    gguf_file: str | None = None  # the file of the weights, if they are a GGUF
    cache_tokens: int = Field(ge=128)  # KV cache of all streams together, allocated at the start
    page_tokens: int = Field(default=256, ge=4)  # allocation unit of the cache
    batch_tokens: int = Field(default=1024, ge=16)  # tokens of prompts and streams per step
    share_prefixes: bool = True  # prefix caching: pages of an earlier prompt are reused
    quantization: Literal["nf4", "none"] = "nf4"  # by bitsandbytes
    device: str = "auto"  # in accelerate's notation; "auto" is the GPU if there is one
    # Flash attention needs packages that are not in the lock file.
    attention: Literal["sdpa", "flash_attention_2", "flash_attention_3"] = "sdpa"

    @model_validator(mode="after")
    def _a_whole_context_fits_the_cache(self) -> Self:
        if self.cache_tokens < self.context_tokens + self.page_tokens:
            raise ValueError("cache_tokens must be at least context_tokens + page_tokens")
        return self


class VllmChatConfig(HubChatConfig):
    """A model on vLLM, in a process of its own beside the replica's."""

    engine: Literal["vllm"]
    # Loads unquantised weights in 4 bits (bitsandbytes), or in 8 on GPUs with FP8. Weights that are
    # already quantised, as by AWQ, GPTQ or FP8, declare it themselves.
    quantization: Literal["bitsandbytes", "fp8"] | None = None
    # Share of each GPU's memory for weights and cache. A swap loads the new model beside the old.
    gpu_memory_utilization: float = Field(default=0.9, gt=0, lt=1)
    tensor_parallel_size: int = Field(default=1, ge=1)  # GPUs of the model; equals `num_gpus`
    enforce_eager: bool = False  # without CUDA graphs: slower, with a quicker start


# Fields of a request that a service may read beside the messages: OpenAI's, and others.
OPENAI_FIELDS = tuple(
    "temperature top_p max_tokens stop seed presence_penalty frequency_penalty tools"
    " parallel_tool_calls response_format stream_options".split()
)
MORE_FIELDS = ("max_completion_tokens", "top_k", "min_p", "chat_template_kwargs", "cache_salt")


class UpstreamConfig(LanguageModelConfig, UpstreamModelConfig):
    """A chat model behind an OpenAI-compatible address: vLLM, llama-server, Ollama, an API."""

    engine: Literal["openai_upstream"]
    context_tokens: int = Field(ge=64)  # per stream
    fields: tuple[str, ...] = OPENAI_FIELDS  # fields that the service reads; others are not sent
    # Whether answers are begun speculatively; an API charges for them.
    drafts: bool = False
    first_token_s: float = Field(default=60.0, gt=0)  # timeout of the first piece of an answer
    idle_s: float = Field(default=30.0, gt=0)  # timeout of each later piece

    @field_validator("fields")
    @classmethod
    def _are_known(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(fields).difference(OPENAI_FIELDS, MORE_FIELDS):
            more = ", ".join(MORE_FIELDS)
            raise ValueError(f"unknown: {sorted(unknown)}; beside OpenAI's fields there are {more}")
        return fields


ChatConfig = Annotated[
    LlamaCppConfig | TransformersChatConfig | VllmChatConfig | UpstreamConfig,
    Field(discriminator="engine"),
]
