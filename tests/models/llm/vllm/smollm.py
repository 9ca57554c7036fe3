"""SmolLM2, whose GGUF the tests have, as a repository of the hub for vLLM."""

import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from configs.schema.models.llm import VllmChatConfig

CONTEXT = 768
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB


def write_smollm(gguf: Path, folder: Path) -> None:
    """Write the weights of a GGUF as bfloat16, and its tokenizer, into `folder`."""
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def smollm_config(**changes: Any) -> VllmChatConfig:
    """Return a configuration for the model of `write_smollm`, on a CPU."""
    return VllmChatConfig(
        **{
            "engine": "vllm",
            "id": "test",
            "owned_by": "test",
            "created": 0,
            "languages": ("en",),
            "weights": "smollm",
            "context_tokens": CONTEXT,
            "parallel": 8,
            "gpu_memory_utilization": 0.5,
            "enforce_eager": True,
            "tools": "hermes",
            **changes,
        }
    )
