"""One step of a fit: a sentence is spoken with a style, and listened to."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.speaker.base import Embedding, Embeddings, SpeakerEncoder
from models.tts.base import TTSEngine

Style = NDArray[np.float32]
"""float32 [256]: the timbre in the first half, the prosody in the second."""


@dataclass(frozen=True, slots=True)
class Target:
    """Whom the voice shall sound like. Small, and sent to each worker once."""

    embedding: Embedding  # of the recordings that the fit may use
    held_out: Embedding  # of those that only judge
    language: str  # ISO 639-1 code of the recordings


@dataclass(frozen=True, slots=True)
class Trial:
    """Independent of all others; a few kilobytes, and crosses processes."""

    number: int  # unique within a fit
    text: str
    style: Style | None  # None: `voice` speaks as it is
    voice: str | None = None  # key of a stock voice
    filters: tuple[tuple[float, ...], ...] = ()  # decibels of each band; one sound, many filters
    judge: bool = False  # also read back, and heard for naturalness
    keep_sound: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the trial of the same number."""

    number: int
    embeddings: Embeddings  # [1 + filters, 256]; the first without a filter
    spectrum: NDArray[np.float32]  # mean power of the speech in each mel band
    pitches: NDArray[np.float32]  # Hz, of frames that have one
    duration_s: float
    took_s: float
    heard: str | None = None  # what the recogniser read, when it was to judge
    quality: float | None = None  # DNSMOS, overall
    sound: NDArray[np.int16] | None = None  # at the engine's rate


class Trials:
    """What a worker process holds; made once, and then asked again and again by one thread."""

    def __init__(self, engine: TTSEngine, encoder: SpeakerEncoder, target: Target) -> None:
        """Blocking, up to some seconds."""
        self._engine = engine
        self._encoder = encoder
        self._target = target

    def run(self, trial: Trial) -> Outcome:
        """Blocking: about half a second, and some more to judge. Raises EngineError."""
        raise NotImplementedError


Report = dict[str, Any]
"""What `GET /voices/{id}/report` shows; JSON."""
