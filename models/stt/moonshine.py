"""Moonshine in ONNX, decoded with a cache of keys and values; each of its models has one language.

The network is that of Jeffries et al., "Moonshine: Speech Recognition for Live Transcription and
Voice Commands" (2024), whose encoder's time is proportional to the length of the speech; the graphs
are those of the exports by Optimum, with one decoder for the first token and for later ones.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import log_softmax

from models.audio import Pcm
from models.errors import WeightsMissing
from models.runtimes.onnx import open_session
from models.stt.base import STT_SAMPLE_RATE
from models.stt.tokens import REPETITIVE, RecognisedToken, compression_ratio

FILES = ("encoder_model.onnx", "decoder_model_merged.onnx", "tokenizer.json")
BEGIN, END = 1, 2  # token ids
FIRST_TEXT = 3  # lower ids are special tokens
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # begins a word
SHORTEST_S = 0.2  # shorter audio is padded, because the convolutions consume some
SPARE_TOKENS = 8  # allowed on top of the tokens that the duration allows

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_MARK = re.compile(r"<.*>")


class Moonshine:
    """Moonshine network, shared by calls of several threads."""

    def __init__(self, files: dict[str, Path], threads: int, max_tokens_per_s: float) -> None:
        """`files` maps names to paths. Raises WeightsMissing."""
        if missing := [name for name in FILES if name not in files]:
            raise WeightsMissing(f"Moonshine reads {', '.join(missing)}, which the weights lack")
        encoder, decoder, tokenizer = (files[name] for name in FILES)
        self._encoder = open_session(encoder, threads)
        self._decoder = open_session(decoder, threads)
        self._pieces = _pieces(tokenizer)
        self._max_tokens_per_s = max_tokens_per_s
        self._present = [output.name for output in self._decoder.get_outputs()][1:]
        self._empty = {
            part.name: np.zeros((1, part.shape[1], 0, part.shape[3]), np.float32)
            for part in self._decoder.get_inputs()
            if part.name.startswith("past_key_values")
        }

    def recognise(self, pcm: Pcm, is_wanted: Callable[[], bool]) -> list[RecognisedToken]:
        """Decodes greedily, without times. Returns no tokens soon after `is_wanted` is false."""
        seconds = len(pcm) / STT_SAMPLE_RATE
        padded = np.pad(pcm, (0, max(0, round(SHORTEST_S * STT_SAMPLE_RATE) - len(pcm))))
        [states] = self._encoder.run(None, {self._encoder.get_inputs()[0].name: padded[None]})
        past = dict(self._empty)
        latest = BEGIN
        tokens: list[RecognisedToken] = []
        for step in range(SPARE_TOKENS + int(seconds * self._max_tokens_per_s)):
            if not is_wanted():
                return []
            logits, *present = self._decoder.run(
                None,
                {
                    "input_ids": np.array([[latest]]),
                    "encoder_hidden_states": states,
                    "use_cache_branch": np.array([step > 0]),
                    **past,
                },
            )
            for name, value in zip(self._present, present, strict=True):
                if step == 0 or ".decoder." in name:  # those of the encoder do not change
                    past[name.replace("present", "past_key_values")] = value
            latest = int(logits[0, -1].argmax())
            if latest == END:
                return tokens
            if latest >= FIRST_TEXT:
                logprob = float(log_softmax(logits[0, -1])[latest])
                tokens.append(RecognisedToken(self._pieces.get(latest, b""), logprob))
        text = b"".join(token.piece for token in tokens).decode(errors="replace")
        return [] if compression_ratio(text) > REPETITIVE else tokens


def _pieces(tokenizer: Path) -> dict[int, bytes]:
    """UTF-8 of each token id of a tokenizer.json with pieces of SentencePiece."""
    vocabulary = json.loads(tokenizer.read_bytes())["model"]["vocab"]
    return {number: _utf8(piece) for piece, number in vocabulary.items()}


def _utf8(piece: str) -> bytes:
    if byte := _BYTE.fullmatch(piece):
        return bytes.fromhex(byte[1])
    return b"" if _MARK.fullmatch(piece) else piece.replace(SPACE, " ").encode()
