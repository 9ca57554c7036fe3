"""CSM with random weights and a tokenizer of characters, small enough for a test on a CPU."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CsmConfig, CsmForConditionalGeneration, PreTrainedTokenizerFast

SPECIAL = ("<|begin|>", "<|end|>", "<|AUDIO|>", "<|audio_eos|>", "<|unknown|>")
CODEBOOKS, CODES, CONTEXT = 4, 64, 640


def make_tiny_csm(folder: Path) -> Any:
    """Writes the files of the model repository; returns the model."""
    torch.manual_seed(0)
    model = CsmForConditionalGeneration(_config()).eval()
    for name, buffer in model.codec_model.quantizer.named_buffers():
        if name.endswith("embed_sum"):  # zero before training: all codes would decode alike
            buffer.normal_()
    model.save_pretrained(folder, max_shard_size="100KB")
    name_as_the_hub_does(folder)
    symbols = [*SPECIAL, *map(chr, range(32, 127))]
    words = models.WordLevel({symbol: at for at, symbol in enumerate(symbols)}, SPECIAL[4])
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    begin, end, _, _, unknown = SPECIAL
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=begin, eos_token=end, unk_token=unknown
    ).save_pretrained(folder)
    return model


def name_as_the_hub_does(folder: Path) -> None:
    """Renames the weights: in the repository, other weights have the default names."""
    index = folder / "model.safetensors.index.json"
    whole = json.loads(index.read_text())
    for name in set(whole["weight_map"].values()):
        (folder / name).rename(folder / name.replace("model-", "transformers-"))
    whole["weight_map"] = {
        weight: name.replace("model-", "transformers-")
        for weight, name in whole["weight_map"].items()
    }
    index.write_text(json.dumps(whole))
    index.rename(folder / "transformers.safetensors.index.json")
    config = json.loads((folder / "config.json").read_text())
    config["transformers_weights"] = "transformers.safetensors.index.json"
    (folder / "config.json").write_text(json.dumps(config))


def _config() -> Any:
    # Some more codes than the codec has, as in the real one: padding among them.
    shared = {"num_codebooks": CODEBOOKS, "vocab_size": CODES + 3}
    return CsmConfig(
        **shared,
        text_vocab_size=200,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        pad_token_id=2,
        audio_token_id=2,
        audio_eos_token_id=3,
        codebook_pad_token_id=CODES + 2,
        depth_decoder_config={
            **shared,
            "backbone_hidden_size": 32,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": CODEBOOKS + 1,
        },
        codec_config={
            "model_type": "mimi",
            "hidden_size": 32,
            "num_filters": 4,
            "codebook_size": CODES,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "num_quantizers": CODEBOOKS,
            "upsample_groups": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "sliding_window": 20,
            "layer_scale_initial_scale": 0.5,
        },
    )
