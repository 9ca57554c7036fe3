"""A request in the engine of Whisper, and how much decoding it may cost."""

import time
from dataclasses import dataclass, replace

from models.stt.base import INTERIM, SPECULATIVE, DecodingBudget, TranscriptionRequest
from models.stt.whisper.encoder_window import WINDOW_STATES, States

SPARE_TOKENS = 16  # allowed on top of the tokens that the duration allows
SPARE_TRIES, TRIES = 5, 2  # of a short request, and of the most tokens of a long one
# The first limit of a text; one that reaches it and does not repeat itself is decoded once more.
# Measured on clips in nine languages: at most 7 tokens a second, and 12 in Hindi.
USUAL_TOKENS_PER_S, DENSE_TOKENS_PER_S = 6.0, 12.0
DENSE = frozenset("am bn bo gu hi hy ka km kn lo ml mr my ne pa sa si ta te th".split())
# States of silence, 20 ms each, that the decoder gets after live speech.
INTERIM_SILENCE = 200  # decoded in 0.6 of the time; repeated texts are dropped
# Measured on 59 recordings in nine languages at telephone quality: compared with the filled window,
# decoding takes 0.8 of the time with fewer runaway texts and the same word error rate.
LIVE_SILENCE = 400


def most_tokens(request: TranscriptionRequest, a_second: float) -> int:
    return SPARE_TOKENS + int(request.seconds * a_second)


def with_budget(request: TranscriptionRequest, a_second: float) -> TranscriptionRequest:
    """The request with the tokens that all of its tries and parts may take."""
    tokens = SPARE_TRIES * SPARE_TOKENS + TRIES * most_tokens(request, a_second)
    return replace(request, budget=DecodingBudget(tokens, request.budget.is_wanted))


@dataclass(slots=True)
class DecodingJob:
    """The state of a request in the engine."""

    request: TranscriptionRequest
    states: States  # [m, width]: the speech and some silence; the decoder gets more silence
    deadline: float  # of time.monotonic(); a doubtful text is not decoded again after it
    language: str = ""
    probability: float = 1.0
    times: bool = False  # decoded with time tokens

    @property
    def prompt(self) -> str | None:
        return self.request.options.initial_prompt

    @property
    def interim(self) -> bool:
        return self.request.urgency == INTERIM

    @property
    def silence(self) -> int:
        """States of silence that the decoder gets after the speech, at most up to the window."""
        shorter = {INTERIM: INTERIM_SILENCE, SPECULATIVE: LIVE_SILENCE}
        return shorter.get(self.request.urgency, WINDOW_STATES)

    @property
    def usual_tokens(self) -> int:
        return most_tokens(
            self.request, DENSE_TOKENS_PER_S if self.language in DENSE else USUAL_TOKENS_PER_S
        )

    @property
    def in_time(self) -> bool:
        return time.monotonic() < self.deadline
