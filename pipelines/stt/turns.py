"""Finds the ends of turns in a live session."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from scipy.special import logit

from configs.schema.transcription import EndpointingConfig
from models.audio import Pcm
from models.errors import EngineError
from models.turn_detection.base import TurnDetectionEngine
from pipelines.stt.decoding import LiveUtterance
from pipelines.stt.endpointing import (
    Endpointer,
    LikelyEnd,
    ManualTurns,
    SemanticTurns,
    SilenceTurns,
    TurnPolicy,
)
from pipelines.stt.file import text_of
from pipelines.tasks import TaskSet
from pipelines.text.unfinished import is_unfinished

logger = logging.getLogger(__name__)

# Silence after which the text is decoded speculatively. A shorter one begins the answer sooner; at
# this one, the word error rate is still that of longer ones (`configs/listening.yaml`).
LIKELY_END_MS = 96
# Silence after which the turn detector runs: its 30 ms are over when the recogniser begins, and the
# audio tells as much as at the likely end. Run together, the two would slow each other.
PAUSE_MS = 64
INCOMPLETE = 0.01  # completeness at which a turn gets the longest wait
UNFINISHED = 0.02  # cap of the completeness of a text that looks unfinished


def end_ms(completeness: float, turns: SemanticTurns) -> float:
    """Returns the silence that ends a turn; it grows geometrically with the odds of more speech."""
    if completeness >= turns.complete < 1:
        return turns.shortest_wait_ms
    if not INCOMPLETE < turns.complete < 1:
        return turns.longest_wait_ms
    least, enough = logit(INCOMPLETE), logit(turns.complete)
    doubt = (enough - logit(max(completeness, INCOMPLETE))) / (enough - least)
    return turns.shortest_wait_ms * math.pow(turns.longest_wait_ms / turns.shortest_wait_ms, doubt)


@dataclass(eq=False, repr=False)
class TurnJudge:
    """Judge of the likely ends of one session's turns, by a detector that is called in threads."""

    _turn_detector: Callable[[], TurnDetectionEngine] | None
    _endpointer: Endpointer
    _tasks: TaskSet
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # one question at a time
    _question: asyncio.Task[float | None] | None = None  # judges the last pause

    def ask(self, pcm: Pcm) -> None:
        """Begins to judge a turn that pauses, float32 [n] at 16 kHz."""
        self._question = self._tasks.start(self._ask(pcm))

    async def end_when_complete(
        self, utterance: LiveUtterance, event: LikelyEnd, turns: SemanticTurns
    ) -> float | None:
        """Ends the utterance, the sooner the more complete it sounds, but not before its text is
        there: without the text nothing could be answered, so the wait costs no time. Returns the
        probability that the turn is complete, if it was judged."""
        question = self._question
        unfinished = False
        if question is None:
            return None
        if (decoding := utterance.task) is not None:
            await asyncio.wait({decoding})
            if not decoding.cancelled() and decoding.exception() is None:
                transcript = decoding.result()
                unfinished = is_unfinished(text_of(transcript), transcript.language)
        completeness = await question
        if completeness is not None and unfinished:
            completeness = min(completeness, UNFINISHED)
        if completeness is not None and utterance.likely_end is event:
            self._endpointer.end_after(end_ms(completeness, turns))
        return completeness

    async def _ask(self, pcm: Pcm) -> float | None:
        """Returns the probability that the turn is complete. None when the turn continued
        meanwhile, or the turn detector failed: then only silence ends the turn."""
        detector = self._turn_detector
        assert detector is not None, "semantic turns need a turn detector"
        async with self._asking:
            if self._question is not asyncio.current_task():
                return None
            try:
                return await asyncio.to_thread(lambda: detector().completeness(pcm))
            except EngineError as error:
                logger.error("turn_detection_failed", extra={"code": error.code})
                return None


def open_endpointer(
    config: EndpointingConfig, frame_samples: int, turns: TurnPolicy | None, utterance_end_ms: float
) -> Endpointer:
    """Opens the endpointer of a session. Without turns, utterances end after `utterance_end_ms`."""
    pause_ms = math.inf
    match turns:
        case SilenceTurns():
            utterance_end_ms = turns.silence_ms
            changed = {
                "pre_roll_ms": turns.padding_ms,
                "speech_threshold": turns.threshold,
                "silence_threshold": min(config.silence_threshold, turns.threshold),
                "likely_end_ms": LIKELY_END_MS,
            }
            config = config.model_copy(update=changed)
        case SemanticTurns():
            utterance_end_ms = turns.longest_wait_ms
            pause_ms = PAUSE_MS
            config = config.model_copy(update={"likely_end_ms": LIKELY_END_MS})
        case ManualTurns():
            utterance_end_ms = math.inf
    return Endpointer(
        config, frame_samples, utterance_end_ms, whole_turns=turns is not None, pause_ms=pause_ms
    )
