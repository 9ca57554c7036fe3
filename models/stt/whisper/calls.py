"""What a network of Whisper answers, whichever library and process computes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generated:
    """One text, in the form of CTranslate2's result."""

    sequences_ids: list[list[int]]  # without the prompt and the end
    scores: list[float]  # mean log probability over the tokens without the end
    no_speech_prob: float


@dataclass(frozen=True, slots=True)
class Aligned:
    """The probability and the position of each token of one text."""

    text_token_probs: list[float]
    alignments: list[tuple[int, int]]  # (token, state of 20 ms)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a loaded model is."""

    n_mels: int
    is_multilingual: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A call, or the loading of the model, that raised an error."""

    text: str


class CallAbandoned(Exception):
    """Every caller of this batch left, so its decoding was ended without a result."""
