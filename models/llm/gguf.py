"""Reads the header of a GGUF file with llama.cpp's own parser, and sizes the cache for it:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and the functions of its gguf.h."""

import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from configs.environment import free_bytes
from configs.schema.models.llm import LlamaCppConfig
from models.errors import EngineError

logger = logging.getLogger(__name__)

STRING, ARRAY = 8, 9  # values of gguf_type
_CONTROL, _USER_DEFINED = 3, 4  # values of llama_token_type
_NUMBERS: dict[int, Any] = dict(
    enumerate(
        (ctypes.c_uint8, ctypes.c_int8, ctypes.c_uint16, ctypes.c_int16, ctypes.c_uint32)
        + (ctypes.c_int32, ctypes.c_float, ctypes.c_bool)
    )
) | {10: ctypes.c_uint64, 11: ctypes.c_int64, 12: ctypes.c_double}
CACHE_BYTES = {"f16": 2.0, "q8_0": 34 / 32}  # per value
FREE_SHARE = 0.5  # share of the memory beside the weights that the cache may take
MOST_CONTEXT, ENOUGH_CONTEXT, LEAST_CONTEXT = 8192, 4096, 512  # tokens per stream
STEP = 256  # tokens
SLOTS = (8, 4, 2, 1)
# How a draft's vocabulary may differ from its model's, by llama.cpp's own rule.
_SPECIAL_TOKENS = 5
_PADDING_TOKENS = 128
_ENCODERS = ("t5", "t5encoder")  # llama.cpp's server does not run their decoder


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("tensors", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class GgufModel:
    """Description of a chat model in a GGUF file."""

    template: str | None  # Jinja
    context_tokens: int  # context length in training
    cache_values: int  # keys and values per token, in all layers
    size_bytes: int
    control_texts: tuple[str, ...]  # texts that are read as control tokens
    undivided_texts: tuple[str, ...]  # other texts that are always read as one token


def read_gguf(library: str, path: str) -> GgufModel:
    """Reads the model at `path`; `library` is llama.cpp's shared library. Raises EngineError for a
    file that is no GGUF, or holds no chat model."""
    with _opened(library, path) as read:
        return _model_of(read, path)


def read_draft(library: str, path: str, draft: str) -> GgufModel:
    """Reads the model at `draft`, which drafts for the model at `path`. Raises EngineError as
    `read_gguf`, and for another vocabulary, with which llama.cpp would load the draft and never use
    it. Vocabularies may differ in padding and in the first, special tokens."""
    with _opened(library, path) as read, _opened(library, draft) as read_drafts:
        tokens, drafted = (of("tokenizer.ggml.tokens") or [] for of in (read, read_drafts))
        model = _model_of(read_drafts, draft)
    shared = slice(_SPECIAL_TOKENS, min(len(tokens), len(drafted)))
    if tokens[shared] != drafted[shared] or abs(len(tokens) - len(drafted)) > _PADDING_TOKENS:
        raise EngineError(f"{draft} cannot draft for {path}: it has a different vocabulary")
    return model


@contextmanager
def _opened(library: str, path: str) -> Iterator[Callable[[str], Any]]:
    """Opens a header; yields a reader of values by key. Raises EngineError, also for a cut file."""
    gguf = ctypes.CDLL(library)
    gguf.gguf_init_from_file.argtypes = [ctypes.c_char_p, _InitParams]
    for function in (gguf.gguf_init_from_file, gguf.gguf_get_val_data, gguf.gguf_get_arr_data):
        function.restype = ctypes.c_void_p
    for function in (gguf.gguf_get_val_str, gguf.gguf_get_arr_str):
        function.restype = ctypes.c_char_p
    gguf.gguf_find_key.restype = ctypes.c_int64
    sizes = gguf.gguf_get_data_offset, gguf.gguf_get_tensor_offset, gguf.gguf_get_tensor_size
    for function in (gguf.gguf_get_arr_n, *sizes):
        function.restype = ctypes.c_size_t
    gguf.gguf_get_n_tensors.restype = ctypes.c_int64
    header = gguf.gguf_init_from_file(os.fsencode(path), _InitParams(True, None))
    if not header:
        raise EngineError(f"{path} cannot be read, or is not a GGUF file")
    try:
        _check_size(gguf, ctypes.c_void_p(header), path)
        yield partial(_value, gguf, ctypes.c_void_p(header))
    finally:
        gguf.gguf_free(ctypes.c_void_p(header))


def _check_size(gguf: Any, header: ctypes.c_void_p, path: str) -> None:
    """Refuses a file that is cut off, for which llama.cpp's error is misleading."""
    data, size = gguf.gguf_get_data_offset(header), os.path.getsize(path)
    ends = [
        data + gguf.gguf_get_tensor_offset(header, index) + gguf.gguf_get_tensor_size(header, index)
        for index in map(ctypes.c_int64, range(gguf.gguf_get_n_tensors(header)))
    ]
    if size < (least := max(ends, default=0)):
        raise EngineError(f"{path} is cut off: it has {size} of {least} bytes")


def _value(gguf: Any, header: ctypes.c_void_p, key: str) -> Any:
    """Reads a number, a text or a list of either; None for other types, or without the key."""
    at = ctypes.c_int64(gguf.gguf_find_key(header, key.encode()))
    if at.value < 0:
        return None
    kind = gguf.gguf_get_kv_type(header, at)
    if kind == STRING:
        return gguf.gguf_get_val_str(header, at).decode(errors="replace")
    if kind != ARRAY:
        return _NUMBERS[kind].from_address(gguf.gguf_get_val_data(header, at)).value
    inner, length = gguf.gguf_get_arr_type(header, at), gguf.gguf_get_arr_n(header, at)
    if inner == STRING:
        return [gguf.gguf_get_arr_str(header, at, ctypes.c_size_t(i)) for i in range(length)]
    if (number := _NUMBERS.get(inner)) is None:
        return None
    return list((number * length).from_address(gguf.gguf_get_arr_data(header, at)))


def _model_of(read: Callable[[str], Any], path: str) -> GgufModel:
    name = str(read("general.architecture"))

    def of(key: str, default: Any = None) -> Any:
        value = read(f"{name}.{key}")
        return default if value is None else value

    kind = read("general.type") or "model"
    if name == "clip" or kind == "mmproj":
        raise EngineError(
            f"{path} is the vision or audio part of a model (mmproj), which cannot chat"
        )
    if kind != "model":
        raise EngineError(f"{path} holds no model, but is of the type {kind!r}")
    if name in _ENCODERS or of("attention.causal") is False or of("pooling_type", 0) > 0:
        raise EngineError(f"{path} makes embeddings or ranks texts ({name}), and does not chat")
    blocks = of("block_count", 0)

    def in_layers(heads: Any) -> list[int]:
        return heads if isinstance(heads, list) else [heads] * blocks

    heads = in_layers(of("attention.head_count", 1))
    cached = in_layers(of("attention.head_count_kv", heads))
    size = of("embedding_length", 0) // max(1, *heads)
    texts = read("tokenizer.ggml.tokens") or []
    kinds = read("tokenizer.ggml.token_type") or []

    def of_kind(wanted: int) -> tuple[str, ...]:
        encoded = (text for text, kind in zip(texts, kinds, strict=False) if kind == wanted)
        return tuple(text.decode(errors="replace") for text in encoded)

    return GgufModel(
        template=read("tokenizer.chat_template"),
        context_tokens=of("context_length", ENOUGH_CONTEXT),
        cache_values=sum(cached)
        * (of("attention.key_length", size) + of("attention.value_length", size)),
        size_bytes=os.path.getsize(path) * (read("split.count") or 1),
        control_texts=of_kind(_CONTROL),
        undivided_texts=of_kind(_USER_DEFINED),
    )


def fitted(
    config: LlamaCppConfig, model: GgufModel, draft: GgufModel | None = None
) -> LlamaCppConfig:
    """Chooses the context and the slots that fit the free memory, where `config` names none: first
    context, up to ENOUGH_CONTEXT, then slots. Raises EngineError when memory is too small."""
    if config.context_tokens and config.parallel:
        return config
    models = [model, *filter(None, [draft])]
    token_bytes = CACHE_BYTES[config.cache_type] * max(1, sum(part.cache_values for part in models))
    free = free_bytes() - sum(part.size_bytes for part in models)
    tokens = int(free * FREE_SHARE / token_bytes)
    most = min(model.context_tokens, MOST_CONTEXT)
    slots = (config.parallel,) if config.parallel else SLOTS
    for parallel in slots:
        least = LEAST_CONTEXT if parallel == slots[-1] else min(most, ENOUGH_CONTEXT)
        context = config.context_tokens or min(most, tokens // parallel // STEP * STEP)
        if context * parallel <= tokens and (config.context_tokens or context >= least):
            chosen = {"context_tokens": context, "parallel": parallel}
            logger.info("context_chosen", extra=chosen)
            return config.model_copy(update=chosen)
    raise EngineError(f"there is too little free memory for {config.id!r} and a context")
