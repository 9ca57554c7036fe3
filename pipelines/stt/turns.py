"""How a live session finds the ends of turns."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

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

# Of silence, after which the text is decoded on suspicion: the answer begins as much sooner as it
# is less, and its word error rate is that of longer ones (`configs/listening.yaml`).
LIKELY_END_MS = 96
# Of silence, after which the turn detector is asked: its 30 ms are over when the recogniser begins,
# and what it hears is as telling as at the likely end. Both at once would slow each other.
PAUSE_MS = 64
INCOMPLETE = 0.01  # at which a turn is waited for as long as it may
UNFINISHED = 0.02  # at most, of a text that looks unfinished


def end_ms(completeness: float, turns: SemanticTurns, *, unfinished: bool = False) -> float:
    """The silence that ends a turn, by the probability that it is complete, and by its text.

    It grows geometrically with the odds that the user goes on.
    """
    if unfinished:
        completeness = min(completeness, UNFINISHED)
    if completeness >= turns.complete < 1:
        return turns.shortest_wait_ms
    if not INCOMPLETE < turns.complete < 1:
        return turns.longest_wait_ms
    least, enough = _log_odds(INCOMPLETE), _log_odds(turns.complete)
    doubt = (enough - _log_odds(max(completeness, INCOMPLETE))) / (enough - least)
    return turns.shortest_wait_ms * math.pow(turns.longest_wait_ms / turns.shortest_wait_ms, doubt)


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


@dataclass(eq=False, repr=False)
class TurnJudge:
    """Judges the likely ends of one session's turns. The turn detector is called in threads, and
    may be loaded at the first."""

    _turn_detector: Callable[[], TurnDetectionEngine] | None
    _endpointer: Endpointer
    _tasks: TaskSet
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # one question at a time
    _question: asyncio.Task[float | None] | None = None  # of the last pause

    def ask(self, pcm: Pcm) -> None:
        """Begins to judge a turn that pauses, float32 [n] at 16 kHz."""
        self._question = self._tasks.start(self._ask(pcm))

    async def judge(
        self, utterance: LiveUtterance, event: LikelyEnd, turns: SemanticTurns
    ) -> float | None:
        """Ends the utterance the sooner, the more it sounds complete, but when its text is known:
        nothing could be answered before, so that waiting costs no time. The probability that it is
        complete, if there is one."""
        question, unfinished = self._question, False
        if question is None:
            return None
        if (decoding := utterance.task) is not None:
            await asyncio.wait({decoding})
            if not decoding.cancelled() and decoding.exception() is None:
                transcript = decoding.result()
                unfinished = is_unfinished(text_of(transcript), transcript.language)
        completeness = await question
        if completeness is not None and utterance.likely_end is event:
            self._endpointer.end_after(end_ms(completeness, turns, unfinished=unfinished))
        if completeness is None:
            return None
        return min(completeness, UNFINISHED) if unfinished else completeness

    async def _ask(self, pcm: Pcm) -> float | None:
        """The probability that the turn is complete; None when it went on meanwhile, or the turn
        detector failed: then only silence ends the turn."""
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
    """The endpointer of a session; without turns, utterances end after `utterance_end_ms`."""
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
            utterance_end_ms, pause_ms = turns.longest_wait_ms, PAUSE_MS
            config = config.model_copy(update={"likely_end_ms": LIKELY_END_MS})
        case ManualTurns():
            utterance_end_ms = math.inf
    return Endpointer(
        config,
        frame_samples,
        utterance_end_ms,
        whole_turns=turns is not None,
        pause_ms=pause_ms,
    )
