"""One step of a fit: a sentence is synthesized with a style, and its sound is measured."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import oaconvolve

from models.audio import Pcm, resample
from models.speaker.base import (
    EMBEDDING_SIZE,
    SPEAKER_SAMPLE_RATE,
    Embedding,
    Embeddings,
    SpeakerEncoder,
)
from models.speaker.mel import MEL_BANDS, mel_spectrum
from models.tts.base import PackRef, SynthesisRequest, TTSEngine
from models.tts.voice_pack import VoicePack, pack_digest, write_pack
from pipelines.audio.measures import pitches_hz
from pipelines.voices.fitting.equaliser import taps
from pipelines.voices.fitting.features import (
    at_level,
    mean_spectrum,
    speech_frames,
    spoken,
)
from pipelines.voices.fitting.metrics import SpeechRaters, SpeechRating, load_speech_raters

MIN_SPEECH_S = 0.5  # less is no sentence

Style = NDArray[np.float32]
"""float32 [256]: the timbre in the first half, the prosody in the second."""

Report = dict[str, Any]
"""What `GET /voices/{id}/report` shows; JSON."""


@dataclass(frozen=True, slots=True)
class Target:
    """The speaker to imitate. Half a megabyte, and sent to each worker once."""

    embedding: Embedding  # of the recordings that the fit may use
    held_out: Embedding  # of those that only rate the result
    language: str  # ISO 639-1 code of the sentences
    rows: NDArray[np.float32]  # [510, 256], how the rows of a pack differ from its style
    british: bool = False  # accent of English


@dataclass(frozen=True, slots=True)
class Trial:
    """Independent of all others; a few kilobytes, and crosses processes."""

    number: int  # unique within a fit
    text: str
    style: Style | None  # None: `voice` speaks as it is
    voice: str | None = None  # key of a stock voice
    filters: tuple[tuple[float, ...], ...] = ()  # decibels of each band; one sound, many filters
    rate: bool = False  # the first filter is part of the pack; speech is read back and rated
    keep_sound: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the trial of the same number."""

    number: int
    embeddings: Embeddings  # [filters, 256]; one where there were none
    spectrum: NDArray[np.float32]  # mean power of the speech in each mel band
    pitches: NDArray[np.float32]  # Hz, of frames that have one
    duration_s: float  # of the speech; 0 when there was none
    took_s: float
    sample_rate: int  # Hz, of the engine
    words: int = 0  # of the text, when it was rated
    errors: int = 0  # word errors of the recogniser
    quality: float | None = None  # mean opinion score
    sound: NDArray[np.int16] | None = None  # at SPEAKER_SAMPLE_RATE


class Trials:
    """What a worker process holds; made once, and used by one thread."""

    def __init__(
        self,
        engine: TTSEngine,
        encoder: SpeakerEncoder,
        target: Target,
        load_raters: Callable[[], SpeechRaters] = load_speech_raters,
    ) -> None:
        """`load_raters` is called when the first trial is to be rated, and takes seconds."""
        self._engine = engine
        self._encoder = encoder
        self._target = target
        self._load_raters = load_raters
        self._raters: SpeechRaters | None = None
        self._any_voice = engine.voices()[0].key

    def run(self, trial: Trial) -> Outcome:
        """Blocking: about half a second, and a second more to rate. Raises EngineError."""
        began = time.perf_counter()
        pcm = self._synthesized(trial)
        if len(pcm) < MIN_SPEECH_S * SPEAKER_SAMPLE_RATE:
            return _silent(
                trial, self._engine.capabilities.sample_rate, time.perf_counter() - began
            )
        level = at_level(pcm)
        filters = () if trial.rate else trial.filters
        through = [_filtered(level, np.array(one)) for one in filters]
        rating = self._rate(trial.text, pcm) if trial.rate else SpeechRating()
        return Outcome(
            number=trial.number,
            embeddings=np.stack([self._encoder.embed(one) for one in through or [level]]),
            spectrum=mean_spectrum(speech_frames(mel_spectrum(level))),
            pitches=pitches_hz(level[spoken(level)]),
            duration_s=len(pcm) / SPEAKER_SAMPLE_RATE,
            took_s=time.perf_counter() - began,
            sample_rate=self._engine.capabilities.sample_rate,
            words=rating.words,
            errors=rating.errors,
            quality=rating.quality,
            sound=_to_int16(pcm) if trial.keep_sound else None,
        )

    def _synthesized(self, trial: Trial) -> Pcm:
        """At SPEAKER_SAMPLE_RATE."""
        pack = None
        if trial.style is not None:
            filters = trial.filters if trial.rate else ()
            data = pack_of(
                self._target, trial.style, filters, self._engine.capabilities.sample_rate
            )
            pack = PackRef(pack_digest(data), data)
        voice = trial.voice or self._any_voice
        request = SynthesisRequest(trial.text, voice, self._target.language, pack=pack)
        pieces = [chunk.pcm for chunk in self._engine.synthesize(request)]
        self._engine.release_memory()  # there are several such processes beside the service
        pcm = np.concatenate([np.zeros(0, np.float32), *pieces])
        return resample(pcm, self._engine.capabilities.sample_rate, SPEAKER_SAMPLE_RATE)

    def _rate(self, text: str, pcm: Pcm) -> SpeechRating:
        if self._raters is None:
            self._raters = self._load_raters()
        return self._raters.rate(text, self._target.language, pcm)


def pack_of(
    target: Target, style: Style, filters: Sequence[Sequence[float]], sample_rate: int
) -> bytes:
    """A voice pack with the first of the filters, for an engine of that rate."""
    made = taps(np.array(filters[0]), sample_rate) if filters else None
    rows = np.asarray(style + target.rows, np.float32)
    return write_pack(VoicePack(rows, made, target.british))


def _filtered(pcm: Pcm, bands: NDArray[np.float64]) -> Pcm:
    made = oaconvolve(pcm, taps(bands, SPEAKER_SAMPLE_RATE), mode="same")
    return at_level(np.asarray(made, np.float32))


def _silent(trial: Trial, sample_rate: int, took_s: float) -> Outcome:
    """Silence is like no speaker."""
    return Outcome(
        number=trial.number,
        embeddings=np.zeros((max(1, len(trial.filters)), EMBEDDING_SIZE), np.float32),
        spectrum=np.zeros(MEL_BANDS, np.float32),
        pitches=np.zeros(0, np.float32),
        duration_s=0.0,
        took_s=took_s,
        sample_rate=sample_rate,
        words=len(trial.text.split()) if trial.rate else 0,
        errors=len(trial.text.split()) if trial.rate else 0,
        quality=1.0 if trial.rate else None,
    )


def _to_int16(pcm: Pcm) -> NDArray[np.int16]:
    return np.asarray(np.clip(np.rint(pcm * 32767), -32768, 32767), np.int16)
