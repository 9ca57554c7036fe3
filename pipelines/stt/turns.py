"""How a live session finds the ends of turns."""

from dataclasses import dataclass
from typing import TypeAlias


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
