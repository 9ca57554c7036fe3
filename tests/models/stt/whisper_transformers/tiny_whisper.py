"""Whisper with random weights and a tokenizer of bytes, small enough for a CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperForConditionalGeneration

LANGUAGES = ("en", "de", "es", "hi")
MARKS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
    *(f"<|{at * 0.02:.2f}|>" for at in range(1501)),
)


def make_tiny_whisper(folder: Path, words: Sequence[str] = ()) -> Any:
    """Writes the files of a model repository; returns the model. `words` are tokens, too."""
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *words]
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    tokenizer.add_special_tokens(list(MARKS))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    numbers = tokenizer.get_vocab()
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=len(letters) + len(MARKS),
            num_mel_bins=128,
            d_model=32,
            encoder_layers=1,
            encoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_layers=2,
            decoder_attention_heads=2,
            decoder_ffn_dim=32,
            init_std=0.3,
            bos_token_id=numbers[MARKS[0]],
            eos_token_id=numbers[MARKS[0]],
            pad_token_id=numbers[MARKS[0]],
            decoder_start_token_id=numbers[MARKS[1]],
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    ).eval()
    model.save_pretrained(folder)
    model.generation_config.alignment_heads = [[1, 0], [1, 1]]
    model.generation_config.save_pretrained(folder)
    return model
