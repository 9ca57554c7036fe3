"""Results of a Whisper network, whichever library and process computes them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generated:
    """One text, in the form of CTranslate2's result."""

    sequences_ids: list[list[int]]  # tokens without the prompt and the end
    scores: list[float]  # mean log probability over the tokens without the end
    no_speech_prob: float


@dataclass(frozen=True, slots=True)
class Aligned:
    """The probability and the position of each token of one text."""

    text_token_probs: list[float]
    alignments: list[tuple[int, int]]  # (token, state of 20 ms)


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of a loaded model."""

    n_mels: int
    is_multilingual: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a call, or of the loading of the model."""

    text: str


class CallAbandoned(Exception):
    """All callers of a batch have left, so its decoding was ended without a result."""
