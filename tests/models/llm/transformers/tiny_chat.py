"""A language model with random weights and a tokenizer of bytes, small enough for a CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from configs.schema.models.llm import TransformersChatConfig
from models.llm.base import ChatEngine, ChatMessage, GenerationDelta, GenerationRequest
from models.llm.base import SamplingOptions as Sampling

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "parts": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["colour", "count", "parts"],
    "additionalProperties": False,
}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": "d", "parameters": SCHEMA}}
    for name in ("paint", "wash")
)
BEGIN, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
# As Hermes and Qwen write chats; thinking is on unless it is turned off, as in SmolLM3.
TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>tools\n' }}\
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}\
{%- for message in messages %}\
{%- if message.role == 'forbidden' %}{{ raise_exception('no such role') }}{% endif %}\
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}\
{{- '<|im_start|>assistant\n' }}\
{%- if not enable_thinking %}{{ '<think>\n\n</think>\n' }}{% endif %}"""
CONTEXT = 1536


def write_tokenizer(folder: Path, words: Sequence[str] = ()) -> int:
    """Writes the files of the tokenizer; returns how many tokens it knows, `words` among them."""
    symbols = [BEGIN, END, PAD, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    tokenizer = Tokenizer(models.BPE({symbol: at for at, symbol in enumerate(symbols)}, []))
    tokenizer.add_special_tokens([BEGIN, END, PAD])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=TEMPLATE
    ).save_pretrained(folder)
    return len(symbols)


def make_tiny_chat(folder: Path, family: str = "llama") -> Any:
    """Writes the files of a model repository; returns the model."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(
            family,
            vocab_size=write_tokenizer(folder) + 5,  # padded, as most are
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=2,
            initializer_range=0.2,  # so that its answers differ
        )
    ).eval()
    model.save_pretrained(folder)
    return model


def tiny_chat_config(**changes: Any) -> TransformersChatConfig:
    """A configuration for the model of `make_tiny_chat`."""
    return TransformersChatConfig(
        **{
            "engine": "transformers",
            "id": "test",
            "owned_by": "test",
            "created": 0,
            "languages": ("en",),
            "weights": "tiny",
            "context_tokens": CONTEXT,
            "cache_tokens": 4 * CONTEXT,
            "page_tokens": 16,
            "parallel": 8,
            "batch_tokens": 64,
            "quantization": "none",
            "dtype": "float32",
            "device": "cpu",
            "tools": "hermes",
            **changes,
        }
    )


def ask(text: str = "Hello", **sampling: Any) -> GenerationRequest:
    return GenerationRequest((ChatMessage("user", text),), Sampling(**sampling))


async def deltas_of(engine: ChatEngine, request: GenerationRequest) -> list[GenerationDelta]:
    return [delta async for delta in engine.generate(request)]


async def text_of(engine: ChatEngine, request: GenerationRequest) -> str:
    return "".join(delta.text for delta in await deltas_of(engine, request))
