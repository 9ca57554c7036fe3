"""Pocket TTS with random weights in Kyutai's form, small enough for a test on a CPU."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers.convert_slow_tokenizer import import_protobuf

HIDDEN, LATENTS, FLOW, CODEC, FILTERS = 128, 8, 32, 64, 4
LAYERS = 2  # of each transformer
PIECES = ("<unk>", "<s>", "</s>", "<pad>", "▁", *map(chr, range(33, 127)))
VOICES = ("alba", "marius", "javert", "anna", "george", "peter_yearsley")
UNKNOWN, CONTROL, NORMAL = 2, 3, 1  # types of pieces


def make_tiny_pocket(folder: Path) -> None:
    """Writes the files of the model and of its voices."""
    generator = torch.Generator().manual_seed(0)
    shapes = {f"flow_lm.{name}": shape for name, shape in _speech().items()}
    shapes |= {f"mimi.{name}": shape for name, shape in _codec().items()}
    tensors = {
        name: torch.randn(shape, generator=generator) * (shape[-1] if len(shape) > 1 else 4) ** -0.5
        for name, shape in shapes.items()
    }
    save_file({name: one.bfloat16() for name, one in tensors.items()}, folder / "model.safetensors")
    model = import_protobuf().ModelProto()
    for number, piece in enumerate(PIECES):
        kind = NORMAL if number > 3 else UNKNOWN if number == 0 else CONTROL
        model.pieces.add(piece=piece, score=-float(number), type=kind)
    model.trainer_spec.model_type = 1  # unigram
    model.trainer_spec.unk_id = 0
    (folder / "tokenizer.model").write_bytes(model.SerializeToString())
    for voice in VOICES:
        save_voice(folder / f"{voice}.safetensors", generator)


def save_voice(file: Path, generator: Any) -> None:
    parts = {}
    for layer in range(LAYERS):
        name = f"transformer.layers.{layer}.self_attn"
        parts[f"{name}/cache"] = torch.randn(2, 1, 12, HIDDEN // 64, 64, generator=generator)
        parts[f"{name}/offset"] = torch.full((1,), 10)  # two of the twelve places are not used
    save_file(parts, file)


def _speech() -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {
        "conditioner.embed.weight": (len(PIECES) + 1, HIDDEN),
        "bos_before_voice": (1, 1, HIDDEN),
        "bos_emb": (LATENTS,),
        "emb_mean": (LATENTS,),
        "emb_std": (LATENTS,),
        "input_linear.weight": (HIDDEN, LATENTS),
        "speaker_proj_weight": (HIDDEN, LATENTS),
        **_linear("out_eos", HIDDEN, 1),
        **_norm("out_norm", HIDDEN),
        **_layers("transformer", HIDDEN),
        **_linear("flow_net.cond_embed", HIDDEN, FLOW),
        **_linear("flow_net.input_proj", LATENTS, FLOW),
        **_linear("flow_net.final_layer.linear", FLOW, LATENTS),
        **_linear("flow_net.final_layer.adaLN_modulation.1", FLOW, 2 * FLOW),
    }
    for number in range(2):
        time, block = f"flow_net.time_embed.{number}", f"flow_net.res_blocks.{number}"
        made |= {f"{time}.freqs": (16,), f"{time}.mlp.3.alpha": (FLOW,)}
        made |= _linear(f"{time}.mlp.0", 32, FLOW) | _linear(f"{time}.mlp.2", FLOW, FLOW)
        made |= _norm(f"{block}.in_ln", FLOW) | _linear(f"{block}.mlp.0", FLOW, FLOW)
        made |= _linear(f"{block}.mlp.2", FLOW, FLOW)
        made |= _linear(f"{block}.adaLN_modulation.1", FLOW, 3 * FLOW)
    return made


def _codec() -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {
        "quantizer.output_proj.weight": (CODEC, LATENTS, 1),
        "downsample.conv.conv.weight": (LATENTS, CODEC, 32),
        "upsample.convtr.convtr.weight": (CODEC, 1, 32),
        **_conv("encoder.model.0", 1, FILTERS, 7),
        **_conv("encoder.model.11", 8 * FILTERS, CODEC, 3),
        **_conv("decoder.model.0", CODEC, 8 * FILTERS, 7),
        **_conv("decoder.model.11", FILTERS, 1, 3),
    }
    for number, ratio in enumerate((4, 5, 6)):
        narrow = FILTERS << number
        down, up = 3 * number + 3, 8 - 3 * number
        made |= _conv(f"encoder.model.{down}", narrow, 2 * narrow, 2 * ratio)
        made[f"decoder.model.{up}.convtr.weight"] = (2 * narrow, narrow, 2 * ratio)
        made[f"decoder.model.{up}.convtr.bias"] = (narrow,)
        for block in (f"encoder.model.{down - 2}", f"decoder.model.{up + 1}"):
            made |= _conv(f"{block}.block.1", narrow, narrow // 2, 3)
            made |= _conv(f"{block}.block.3", narrow // 2, narrow, 1)
    for side in ("encoder", "decoder"):
        made |= _layers(f"{side}_transformer.transformer", CODEC)
        for layer in range(LAYERS):
            for number in (1, 2):
                name = f"{side}_transformer.transformer.layers.{layer}.layer_scale_{number}.scale"
                made[name] = (CODEC,)
    return made


def _layers(name: str, size: int) -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {}
    for layer in range(LAYERS):
        at = f"{name}.layers.{layer}"
        made |= _norm(f"{at}.norm1", size) | _norm(f"{at}.norm2", size)
        made[f"{at}.self_attn.in_proj.weight"] = (3 * size, size)
        made[f"{at}.self_attn.out_proj.weight"] = (size, size)
        made[f"{at}.linear1.weight"] = (2 * size, size)
        made[f"{at}.linear2.weight"] = (size, 2 * size)
    return made


def _linear(name: str, size: int, to: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (to, size), f"{name}.bias": (to,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def _conv(name: str, size: int, to: int, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.conv.weight": (to, size, width), f"{name}.conv.bias": (to,)}
