"""Reads Kyutai's files of Pocket TTS into the networks of the transformers library.

The files are those of https://huggingface.co/kyutai/pocket-tts, in the form of the package
`pocket-tts` (https://github.com/kyutai-labs/pocket-tts) for models that put a learnt vector before
the voice: all since April 2026. The library's networks have other names for the same weights, and
another order of the rows of queries and keys: its rotary embeddings rotate the halves of a head,
and Kyutai's rotate neighbouring rows.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import (
    PocketTTSAudioTokenizerConfig,
    PocketTTSAudioTokenizerModel,
    PocketTTSConfig,
    PocketTTSForConditionalGeneration,
)
from transformers.convert_slow_tokenizer import SpmConverter, import_protobuf

from configs.load import load_yaml
from models.errors import WeightsCorrupt

Tensor: TypeAlias = torch.Tensor
Voice: TypeAlias = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of a voice in each layer, [1, heads, frames, HEAD]."""

HEAD = 64  # size of an attention head in all of Kyutai's checkpoints
NO_TEXT = (2, 3)  # the types of pieces such as "<unk>" and "</s>"
PLACES = 4  # special tokens after those of text: a frame of a voice, of speech, and their starts

_NAMES = load_yaml(dict[str, dict[str, str]], str(Path(__file__).with_name("names.yaml")))


def read_networks(file: Path) -> tuple[Any, Any]:
    """Reads the language model of latents and the codec, in float32. Raises WeightsCorrupt."""
    tensors = _tensors(file)
    try:
        speech, codec = _part(tensors, "flow_lm."), _part(tensors, "mimi.")
        embeddings = speech.pop("conditioner.embed.weight")[:-1]  # the last row is for padding
        start = speech.pop("bos_before_voice").reshape(1, -1)
        empty = torch.zeros(PLACES - 2, embeddings.shape[1])
        embeddings = torch.cat([embeddings, empty, start, empty[:1]])
        config = _speech_config(speech, len(embeddings))
        weights = _renamed(speech, "speech") | {"model.embed_tokens.weight": embeddings}
        return (
            _loaded(PocketTTSForConditionalGeneration, config, weights),
            _loaded(PocketTTSAudioTokenizerModel, _codec_config(codec), _renamed(codec, "codec")),
        )
    except (LookupError, RuntimeError, ValueError) as error:
        raise WeightsCorrupt(f"{file.name!r} is not a Pocket TTS checkpoint: {error!r}") from error


def read_voice(file: Path) -> Voice:
    """Reads a voice that Kyutai has prepared. Raises WeightsCorrupt."""
    tensors = _tensors(file)
    layers = []
    for number in range(_count(tensors, r"transformer\.layers\.(\d+)\.self_attn/cache")):
        name = f"transformer.layers.{number}.self_attn"
        used = tensors.get(f"{name}/offset")
        cache = tensors[f"{name}/cache"].float().transpose(2, 3)  # [2, 1, heads, frames, HEAD]
        keys, values = cache if used is None else cache[..., : int(used.reshape(-1)[0]), :]
        layers.append((torch.cat([keys[..., ::2], keys[..., 1::2]], dim=-1), values.contiguous()))
    if not layers:
        raise WeightsCorrupt(f"{file.name!r} is not a Pocket TTS voice")
    return tuple(layers)


def read_tokenizer(file: Path) -> Any:
    """Reads the tokenizer of a SentencePiece model. Raises WeightsCorrupt."""
    try:
        model = import_protobuf().ModelProto.FromString(file.read_bytes())
        # Renamed pieces occur in no text.
        names = ["\0" * (piece.type in NO_TEXT) + piece.piece for piece in model.pieces]
        vocabulary = [(name, piece.score) for name, piece in zip(names, model.pieces, strict=True)]
        if not vocabulary:
            raise ValueError("it has no pieces")
        return SpmConverter.build_tokenizer_from_spm_proto(model, vocabulary)
    except Exception as error:  # the tokenizers' library raises plain Exception
        raise WeightsCorrupt(f"{file.name!r} is not a tokenizer: {error}") from error


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(file)
        return tensors
    except SafetensorError as error:
        raise WeightsCorrupt(f"{file.name!r} cannot be read: {error}") from error


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor.float()
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _renamed(tensors: Mapping[str, Tensor], network: str) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    names = _NAMES["layer"] | _NAMES[network]
    for name, tensor in tensors.items():
        for pattern, replacement in names.items():
            name = re.sub(pattern, replacement, name)
        *before, end = name.split(".in_proj.")
        if not before:
            renamed[name] = tensor
            continue
        for part, rows in zip("qkv", tensor.chunk(3), strict=True):
            if part != "v":
                rows = rows.unflatten(0, (-1, HEAD // 2, 2)).transpose(1, 2).flatten(0, 2)
            renamed[f"{before[0]}.{part}_proj.{end}"] = rows.contiguous()
    return renamed


def _speech_config(speech: Mapping[str, Tensor], tokens: int) -> PocketTTSConfig:
    hidden, latents = speech["input_linear.weight"].shape
    flow = speech["flow_net.input_proj.weight"].shape[0]
    first = tokens - PLACES
    return PocketTTSConfig(
        flow_head_config={
            "hidden_size": flow,
            "num_hidden_layers": _count(speech, r"flow_net\.res_blocks\.(\d+)"),
            "latent_dim": latents,
            "condition_dim": hidden,
            "frequency_embedding_size": 2 * len(speech["flow_net.time_embed.0.freqs"]),
        },
        vocab_size=tokens,
        hidden_size=hidden,
        num_hidden_layers=_count(speech, r"transformer\.layers\.(\d+)"),
        num_attention_heads=hidden // HEAD,
        intermediate_size=len(speech["transformer.layers.0.linear1.weight"]),
        latent_dim=latents,
        audio_prompt_token_id=first,
        audio_latent_token_id=first + 1,
        audio_prompt_bos_token_id=first + 2,
        audio_bos_token_id=first + 3,
    )


def _codec_config(codec: Mapping[str, Tensor]) -> PocketTTSAudioTokenizerConfig:
    hidden, latents, _ = codec["quantizer.output_proj.weight"].shape
    return PocketTTSAudioTokenizerConfig(
        hidden_size=hidden,
        num_filters=len(codec["encoder.model.0.conv.weight"]),
        upsample_groups=hidden,
        num_hidden_layers=_count(codec, r"encoder_transformer\.transformer\.layers\.(\d+)"),
        intermediate_size=len(codec["encoder_transformer.transformer.layers.0.linear1.weight"]),
        num_attention_heads=hidden // HEAD,
        num_key_value_heads=hidden // HEAD,
        latent_dim=latents,
    )


def _count(tensors: Mapping[str, Tensor], pattern: str) -> int:
    return len({match[1] for name in tensors if (match := re.match(pattern, name))})


def _loaded(network: Any, config: Any, weights: dict[str, Tensor]) -> Any:
    model, report = network.from_pretrained(
        None, config=config, state_dict=weights, dtype=torch.float32, output_loading_info=True
    )
    if wrong := [name for kind in report.values() for name in kind]:
        raise ValueError(f"{wrong[0]!r} does not fit")
    return model.eval()
