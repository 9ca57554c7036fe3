"""A request in the Whisper engine, and its decoding budget."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.stt.base import INTERIM, SPECULATIVE, DecodingBudget, TranscriptionRequest
from models.stt.whisper.encoder_window import STATES_PER_S, WINDOW_STATES, States

SPARE_TOKENS = 16  # added to the tokens that the duration allows
# The budget of a request is counted in tokens: BUDGET_FACTOR times what ordinary speech of its
# length takes. Measured on one core: 10.7 ms a token, 58 ms a call besides, 25 to 45 ms for the
# alignment, and for the encoder 0.075 s for 6 s of audio and 0.68 s for 30 s.
BUDGET_FACTOR = 2.6
RESERVE_FACTOR = 0.3  # added to decode few repetitions, after a loop has spent the budget
CALL_TOKENS = 10
ORDINARY_TOKENS_PER_S = 4.0
DENSE_ORDINARY_TOKENS_PER_S = 8.0
# First limit of a text. A text that reaches it and does not repeat itself is decoded once more.
# Measured on clips in nine languages: at most 7 tokens a second, 12 in Hindi, 2 to 4 in English.
USUAL_TOKENS_PER_S = 6.0
DENSE_TOKENS_PER_S = 12.0
DENSE = frozenset("am bn bo gu hi hy ka km kn lo ml mr my ne pa sa si ta te th".split())
# States of silence, 20 ms each, that the decoder gets after live speech.
INTERIM_SILENCE = 200  # takes 0.6 times as long; texts that repeat themselves are dropped
# Measured on 59 recordings in nine languages at telephone quality: decoding takes 0.8 times as long
# as with the filled window, with fewer runaway texts and the same word error rate.
LIVE_SILENCE = 400


def encoding_tokens(states: int) -> float:
    """Returns the cost of encoding in tokens, which grows with the square of the length."""
    return 1 + states / 72 + (states / 232) ** 2 if states else 0.0


def with_budget(request: TranscriptionRequest) -> TranscriptionRequest:
    """Returns a request with a budget of its own, which its first encoding will set."""
    return replace(request, budget=DecodingBudget(is_wanted=request.budget.is_wanted))


@dataclass(slots=True)
class DecodingJob:
    """The state of a request in the engine."""

    request: TranscriptionRequest
    # [m, width]: speech and some silence, to which the decoder's input adds more
    states: States = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    began: float = field(default_factory=time.monotonic)
    language: str = ""
    probability: float = 1.0
    scores: dict[str, float] = field(default_factory=dict)  # by language, if it was detected
    times: bool = False  # whether to decode with time tokens
    no_repeat: int = 0  # tokens in a row that may not occur twice in the text; 0: no limit
    is_again: bool = False  # whether decoding with the prompt has failed
    shortens: bool = True  # whether it may still be decoded with few of its repetitions
    onsets_s: Sequence[float] = ()  # onsets of all repetitions, where few were decoded

    @property
    def prompt(self) -> str:
        return self.request.options.prompt

    @property
    def written_in(self) -> str:
        """Language of the text, which may be a translation."""
        return "en" if self.request.options.translate else self.language

    @property
    def interim(self) -> bool:
        return self.request.urgency == INTERIM

    @property
    def recounts(self) -> bool:
        """Whether a repeated word is written as often as it occurs in the sound."""
        fixed = self.interim or self.prompt or self.request.options.translate
        return bool(self.request.speech) and not fixed

    @property
    def silence(self) -> int:
        """Number of states of silence after the speech; the window may have room for fewer."""
        shorter = {INTERIM: INTERIM_SILENCE, SPECULATIVE: LIVE_SILENCE}
        usual = LIVE_SILENCE if self.prompt or self.is_again else WINDOW_STATES
        return shorter.get(self.request.urgency, usual)

    @property
    def usual_tokens(self) -> int:
        """Limit of the text in the first decoding, in tokens."""
        per_s = DENSE_TOKENS_PER_S if self.language in DENSE else USUAL_TOKENS_PER_S
        return SPARE_TOKENS + int(self.request.seconds * per_s)

    @property
    def in_time(self) -> bool:
        """Whether there is still time to decode a doubtful text again."""
        within_s = self.request.retry_within_s
        return within_s is None or time.monotonic() < self.began + within_s

    @property
    def left(self) -> int:
        """Limit of the next decoding in tokens."""
        left = self.request.budget.tokens - CALL_TOKENS
        return max(SPARE_TOKENS, int(min(left, WINDOW_STATES)))

    def affords(self, encoded_s: float = 0.0, *, is_ordinary: bool = False) -> bool:
        """Whether a caller still waits, and the budget allows another decoding. `encoded_s`: speech
        (s) to encode again. `is_ordinary`: allow as much text as ordinary speech of that length
        has."""
        budget = self.request.budget
        states = min(WINDOW_STATES, int(encoded_s * STATES_PER_S))
        text = ORDINARY_TOKENS_PER_S * encoded_s if is_ordinary else SPARE_TOKENS
        needed = encoding_tokens(states) + CALL_TOKENS + text
        return budget.tokens >= needed and budget.is_wanted()

    def begin(self) -> None:
        """Charges the budget for encoding the states; the first call sets the budget."""
        budget = self.request.budget
        cost = encoding_tokens(len(self.states))
        if budget.tokens == math.inf:
            is_dense = self.language in DENSE
            per_s = DENSE_ORDINARY_TOKENS_PER_S if is_dense else ORDINARY_TOKENS_PER_S
            ordinary = cost + CALL_TOKENS + per_s * self.request.seconds
            budget.tokens = BUDGET_FACTOR * ordinary
            budget.reserve = RESERVE_FACTOR * ordinary
        budget.tokens -= cost
