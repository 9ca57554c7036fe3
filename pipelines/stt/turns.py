"""How a live session finds the ends of turns."""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from configs.schema.transcription import EndpointingConfig
from models.audio import Pcm
from models.errors import EngineError
from models.turn_detection.base import TurnDetectionEngine
from pipelines.stt.endpointing import Endpointer

logger = logging.getLogger(__name__)

COMPLETE = 0.5  # of the turn detector's probability
COMPLETE_END_MS = 200.0  # of silence that end a turn that sounds complete


@dataclass(frozen=True, slots=True)
class SilenceTurns:
    """A turn ends after a silence of a fixed length."""

    silence_ms: int = 500
    padding_ms: int = 300  # of audio before the speech
    threshold: float = 0.5  # probability of speech, at which it begins


@dataclass(frozen=True, slots=True)
class SemanticTurns:
    """A turn ends soon after a complete sentence, and after `longest_wait_ms` of silence else."""

    longest_wait_ms: int = 4000


@dataclass(frozen=True, slots=True)
class ManualTurns:
    """A turn ends when the client says so."""


TurnPolicy: TypeAlias = SilenceTurns | SemanticTurns | ManualTurns


def end_ms(completeness: float, turns: SemanticTurns) -> float:
    """The silence that ends a turn, by the probability that it is complete."""
    return COMPLETE_END_MS if completeness >= COMPLETE else turns.longest_wait_ms


class TurnJudge:
    """Asks the turn detector. It is called in threads, and may load it at the first."""

    def __init__(self, turn_detector: Callable[[], TurnDetectionEngine] | None) -> None:
        self._turn_detector = turn_detector

    async def end_ms(self, pcm: Pcm, turns: SemanticTurns) -> float:
        """The silence that ends a turn with this speech, float32 [n] at 16 kHz."""
        try:
            completeness = await asyncio.to_thread(self._completeness, pcm)
        except EngineError as error:  # then only silence tells
            logger.error("turn_detection_failed", extra={"code": error.code})
            return turns.longest_wait_ms
        return end_ms(completeness, turns)

    def _completeness(self, pcm: Pcm) -> float:
        assert self._turn_detector is not None, "semantic turns need a turn detector"
        return self._turn_detector().completeness(pcm)


def open_endpointer(
    config: EndpointingConfig, frame_samples: int, turns: TurnPolicy | None, utterance_end_ms: float
) -> Endpointer:
    """The endpointer of a session; without turns, utterances end after `utterance_end_ms`."""
    match turns:
        case SilenceTurns():
            utterance_end_ms = turns.silence_ms
            changed = {
                "pre_roll_ms": turns.padding_ms,
                "speech_threshold": turns.threshold,
                "silence_threshold": min(config.silence_threshold, turns.threshold),
            }
            config = config.model_copy(update=changed)
        case SemanticTurns():
            utterance_end_ms = turns.longest_wait_ms
        case ManualTurns():
            utterance_end_ms = math.inf
    return Endpointer(config, frame_samples, utterance_end_ms, whole_turns=turns is not None)
