"""Moonshine in ONNX, decoded with a cache of keys and values; each of its models has one language.

The network is that of Jeffries et al., "Moonshine: Speech Recognition for Live Transcription and
Voice Commands" (2024), whose encoder takes as long as the speech is; the graphs are those of the
exports by Optimum, with one decoder for the first token and the others.
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
from models.stt.tokens import REPETITIVE, HeardToken, compression_ratio

FILES = ("encoder_model.onnx", "decoder_model_merged.onnx", "tokenizer.json")
BEGIN, END = 1, 2  # ids of tokens
FIRST_TEXT = 3  # ids below it are marks
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # begins a word
SHORTEST_S = 0.2  # less is followed by silence: the convolutions take some
SPARE_TOKENS = 8  # allowed on top of the tokens that the duration allows

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_MARK = re.compile(r"<.*>")


class Moonshine:
    """One network; calls of several threads share it."""

    def __init__(self, files: dict[str, Path], threads: int, max_tokens_per_s: float) -> None:
        """`files` by their names. Raises WeightsMissing."""
        if missing := [name for name in FILES if name not in files]:
            raise WeightsMissing(f"Moonshine reads {', '.join(missing)}, which the weights lack")
        encoder, decoder, tokenizer = (files[name] for name in FILES)
        self._encoder = open_session(encoder, threads)
        self._decoder = open_session(decoder, threads)
        self._pieces = _pieces(tokenizer)
        self._max_tokens_per_s = max_tokens_per_s
        self._present = [one.name for one in self._decoder.get_outputs()][1:]
        self._empty = {
            one.name: np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32)
            for one in self._decoder.get_inputs()
            if one.name.startswith("past_key_values")
        }

    def recognise(self, pcm: Pcm, is_wanted: Callable[[], bool]) -> list[HeardToken]:
        """The likeliest token at each step, without their times.

        Returns no tokens soon after `is_wanted` is false.
        """
        seconds = len(pcm) / STT_SAMPLE_RATE
        padded = np.pad(pcm, (0, max(0, round(SHORTEST_S * STT_SAMPLE_RATE) - len(pcm))))
        [states] = self._encoder.run(None, {self._encoder.get_inputs()[0].name: padded[None]})
        past, latest = dict(self._empty), BEGIN
        tokens: list[HeardToken] = []
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
                if step == 0 or ".decoder." in name:  # those of the encoder stay
                    past[name.replace("present", "past_key_values")] = value
            latest = int(logits[0, -1].argmax())
            if latest == END:
                return tokens
            if latest >= FIRST_TEXT:
                logprob = float(log_softmax(logits[0, -1])[latest])
                tokens.append(HeardToken(self._pieces.get(latest, b""), logprob))
        text = b"".join(token.piece for token in tokens).decode(errors="replace")
        is_endless = compression_ratio(text) > REPETITIVE
        return [] if is_endless else tokens


def _pieces(tokenizer: Path) -> dict[int, bytes]:
    """The UTF-8 of each token of a tokenizer.json, with the pieces of SentencePiece."""
    vocabulary = json.loads(tokenizer.read_bytes())["model"]["vocab"]
    return {number: _utf8(piece) for piece, number in vocabulary.items()}


def _utf8(piece: str) -> bytes:
    if byte := _BYTE.fullmatch(piece):
        return bytes.fromhex(byte[1])
    return b"" if _MARK.fullmatch(piece) else piece.replace(SPACE, " ").encode()
