"""Converts Whisper weights from CTranslate2 to the names of the transformers library."""

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import WhisperConfig, WhisperForConditionalGeneration

_TYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_NAMES = {
    "self_attention": "self_attn",
    "attention": "encoder_attn",
    "gamma": "weight",
    "beta": "bias",
}


def convert(source: Path, folder: Path) -> None:
    """Writes the CTranslate2 model of `source` for transformers; the tokenizer is copied."""
    values = dict(_read(source / "model.bin"))
    layers = 1 + max(int(n) for name in values for n in re.findall(r"/layer_(\d+)/", name))
    width = values["encoder/conv1/weight"].shape[0]
    heads = int(values["encoder/num_heads"])
    marks = {
        token["content"]: token["id"]
        for token in json.loads((source / "tokenizer.json").read_text())["added_tokens"]
    }
    end = marks["<|endoftext|>"]
    vocabulary = len(values["decoder/embeddings/weight"])
    config = WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=values["encoder/conv1/weight"].shape[1],
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=marks["<|startoftranscript|>"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    network = WhisperForConditionalGeneration(config)
    named = {
        f"model.{name}": torch.from_numpy(np.ascontiguousarray(value, np.float32))
        for old, values_of in values.items()
        for name, value in _renamed(old, values_of)
    }
    missing, unknown = network.load_state_dict(named, strict=False)
    assert not unknown and set(missing) <= {"proj_out.weight"}, (missing, unknown)
    network.tie_weights()
    network.save_pretrained(folder)
    listed = json.loads((source / "config.json").read_text())
    network.generation_config.alignment_heads = listed["alignment_heads"]
    network.generation_config.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())


def _read(path: Path) -> Iterator[tuple[str, NDArray[np.generic]]]:
    with path.open("rb") as file:
        (version,) = struct.unpack("<I", file.read(4))
        assert version >= 5, version
        _text(file)
        _, count = struct.unpack("<II", file.read(8))
        for _ in range(count):
            name = _text(file)
            (rank,) = struct.unpack("<B", file.read(1))
            shape = struct.unpack(f"<{rank}I", file.read(4 * rank))
            kind, size = struct.unpack("<BI", file.read(5))
            yield name, np.frombuffer(file.read(size), _TYPES[kind]).reshape(shape)


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<H", file.read(2))
    return file.read(length).rstrip(b"\0").decode()


def _renamed(old: str, value: NDArray[np.generic]) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """A variable under its names in transformers; fused projections are split, settings dropped."""
    if not value.ndim:
        return
    if old.startswith(("encoder/position_encodings", "decoder/position_encodings")):
        yield f"{old.split('/')[0]}.embed_positions.weight", value
        return
    if old == "decoder/embeddings/weight":
        yield "decoder.embed_tokens.weight", value
        return
    if old.startswith("decoder/projection"):
        return  # the same as the embeddings
    part, *rest = old.split("/")
    last = _NAMES.get(rest[-1], rest[-1])
    if rest[0].startswith("conv"):
        yield f"{part}.{rest[0]}.{last}", value
    elif rest[0] == "layer_norm":
        yield f"{part}.layer_norm.{last}", value
    else:
        layer = f"{part}.layers.{rest[0].removeprefix('layer_')}"
        yield from _of_layer(layer, rest[1], rest[2], last, value)


def _of_layer(
    layer: str, block: str, piece: str, last: str, value: NDArray[np.generic]
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    if block == "ffn":
        name = {"layer_norm": "final_layer_norm", "linear_0": "fc1", "linear_1": "fc2"}[piece]
        yield f"{layer}.{name}.{last}", value
        return
    attention = f"{layer}.{_NAMES[block]}"
    if piece == "layer_norm":
        yield f"{attention}_layer_norm.{last}", value
        return
    fused = {
        ("self_attn", "linear_0"): ("q", "k", "v"),
        ("self_attn", "linear_1"): ("out",),
        ("encoder_attn", "linear_0"): ("q",),
        ("encoder_attn", "linear_1"): ("k", "v"),
        ("encoder_attn", "linear_2"): ("out",),
    }[_NAMES[block], piece]
    for name, share in zip(fused, np.split(value, len(fused)), strict=True):
        if (name, last) != ("k", "bias"):  # keys have no bias
            yield f"{attention}.{name}_proj.{last}", share
