"""Headers of GGUF files, as https://github.com/ggml-org/ggml/blob/master/docs/gguf.md has them."""

import struct
from pathlib import Path
from typing import Any

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.type": "model",
    "llama.block_count": 4,
    "llama.context_length": 16384,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.tokens": ["a", "b"],
}


def write_gguf(path: Path, **changes: Any) -> str:
    """A file without tensors, and with the metadata of a small Llama; None leaves a key out."""
    metadata = LLAMA | {name.replace("__", "."): value for name, value in changes.items()}
    pairs = [(name, value) for name, value in metadata.items() if value is not None]
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs))
    path.write_bytes(head + b"".join(_text(name) + _typed(value) for name, value in pairs))
    return str(path)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _typed(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    inner = [_typed(one) for one in value]
    return (
        struct.pack("<I", 9)
        + inner[0][:4]
        + struct.pack("<Q", len(inner))
        + b"".join(one[4:] for one in inner)
    )
