"""A request in the engine of Whisper, and how much decoding it may cost."""

import math
import time
from dataclasses import dataclass, field, replace

import numpy as np

from models.stt.base import INTERIM, SPECULATIVE, DecodingBudget, TranscriptionRequest
from models.stt.whisper.encoder_window import STATES_PER_S, WINDOW_STATES, States

SPARE_TOKENS = 16  # allowed on top of the tokens that the duration allows
# The budget of a request: so many times what ordinary speech of its length takes, in tokens.
# Measured: one takes 10.7 ms of a core; a call takes 58 ms besides, and the alignment 25 to
# 45 ms; the encoder 0.075 s for 6 s and 0.68 s for 30 s.
MOST_TIMES = 2.6
CALL_TOKENS = 10
ORDINARY_TOKENS_PER_S, DENSE_ORDINARY_TOKENS_PER_S = 4.0, 8.0
# The first limit of a text; one that reaches it and does not repeat itself is decoded once more.
# Measured on clips in nine languages: at most 7 tokens a second, 12 in Hindi; English has 2 to 4.
USUAL_TOKENS_PER_S, DENSE_TOKENS_PER_S = 6.0, 12.0
DENSE = frozenset("am bn bo gu hi hy ka km kn lo ml mr my ne pa sa si ta te th".split())
# States of silence, 20 ms each, that the decoder gets after live speech.
INTERIM_SILENCE = 200  # decoded in 0.6 of the time; repeated texts are dropped
# Measured on 59 recordings in nine languages at telephone quality: compared with the filled window,
# decoding takes 0.8 of the time with fewer runaway texts and the same word error rate.
LIVE_SILENCE = 400


def encoding_tokens(states: int) -> float:
    """What encoding takes, which grows with the square of its length."""
    return 1 + states / 72 + (states / 232) ** 2 if states else 0.0


def with_budget(request: TranscriptionRequest) -> TranscriptionRequest:
    """The request with a budget of its own, which its first encoding sets."""
    return replace(request, budget=DecodingBudget(is_wanted=request.budget.is_wanted))


@dataclass(slots=True)
class DecodingJob:
    """The state of a request in the engine."""

    request: TranscriptionRequest
    # [m, width]: the speech and some silence; the decoder gets more silence
    states: States = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    began: float = field(default_factory=time.monotonic)
    language: str = ""
    probability: float = 1.0
    scores: dict[str, float] = field(default_factory=dict)  # of languages, if they were detected
    times: bool = False  # decoded with time tokens
    no_repeat: int = 0  # tokens in a row that its text has only once; 0 for any
    is_again: bool = False  # after its prompt was tried

    @property
    def prompt(self) -> str:
        return self.request.options.prompt

    @property
    def written_in(self) -> str:
        """The language of the text."""
        return "en" if self.request.options.translate else self.language

    @property
    def interim(self) -> bool:
        return self.request.urgency == INTERIM

    @property
    def silence(self) -> int:
        """States of silence that the decoder gets after the speech, at most up to the window."""
        shorter = {INTERIM: INTERIM_SILENCE, SPECULATIVE: LIVE_SILENCE}
        usual = LIVE_SILENCE if self.prompt or self.is_again else WINDOW_STATES
        return shorter.get(self.request.urgency, usual)

    @property
    def usual_tokens(self) -> int:
        a_second = DENSE_TOKENS_PER_S if self.language in DENSE else USUAL_TOKENS_PER_S
        return SPARE_TOKENS + int(self.request.seconds * a_second)

    @property
    def in_time(self) -> bool:
        """Whether a doubtful text is decoded again."""
        within_s = self.request.retry_within_s
        return within_s is None or time.monotonic() < self.began + within_s

    @property
    def left(self) -> int:
        """The most tokens of the next decoding."""
        left = self.request.budget.tokens - CALL_TOKENS
        return max(SPARE_TOKENS, int(min(left, WINDOW_STATES)))

    def affords(self, encoded_s: float = 0.0) -> bool:
        """Whether the budget has another decoding, after an encoding of so many seconds, and
        someone waits for it."""
        budget = self.request.budget
        states = min(WINDOW_STATES, int(encoded_s * STATES_PER_S))
        needed = encoding_tokens(states) + CALL_TOKENS + SPARE_TOKENS
        return budget.tokens >= needed and budget.is_wanted()

    def begin(self) -> None:
        """Counts the encoding of the states; the first one sets the budget of the request."""
        budget, cost = self.request.budget, encoding_tokens(len(self.states))
        if budget.tokens == math.inf:
            is_dense = self.language in DENSE
            a_second = DENSE_ORDINARY_TOKENS_PER_S if is_dense else ORDINARY_TOKENS_PER_S
            budget.tokens = MOST_TIMES * (cost + CALL_TOKENS + a_second * self.request.seconds)
        budget.tokens -= cost
