"""One step of a fit: a sentence is synthesised with a style, and its audio is measured. Speech is
rated by the word errors of a recogniser, and by the mean opinion score of DNSMOS."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from rapidfuzz.distance import Levenshtein
from scipy.signal import oaconvolve

from configs.load import load_yaml
from configs.schema.base import StrictModel
from configs.settings import weights_dir
from models.audio import Pcm, float_to_pcm16, resample
from models.quality.base import QualityEngine
from models.registry import QUALITY, SPEAKER, STT, load, load_model, once
from models.speaker.base import SPEAKER_SAMPLE_RATE, Embedding, Embeddings, SpeakerEncoder
from models.speaker.mel import MEL_BANDS, mel_spectrum
from models.stt.base import STTEngine, TranscriptionRequest
from models.tts.base import PackRef, SynthesisRequest, TTSEngine
from models.tts.voice_pack import VoicePack, pack_digest, write_pack
from models.weights.store import WeightStore
from pipelines.audio.effects import HighPass
from pipelines.audio.measures import pitches_hz
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.voices.fitting.equaliser import taps
from pipelines.voices.fitting.features import (
    DELIVERED_DBFS,
    SOUND_SIZE,
    at_level,
    embed_both,
    mean_spectrum,
    speech_frames,
    spoken,
)

MIN_SPEECH_S = 0.5  # less is treated as silence
WITHOUT_SPACES = frozenset({"ja", "zh"})  # each character counts as a word
STT_CONFIG, QUALITY_CONFIG = "stt/whisper_base", "quality/dnsmos"
SECOND_ENCODER_CONFIG = "speaker/campplus"  # gives a second opinion that no search has optimised

Style = NDArray[np.float32]
"""A style, float32 [256]: the timbre in the first half, the prosody in the second."""


class Sentences(StrictModel):
    """The sentences of one language."""

    search: tuple[str, ...] = Field(min_length=2)
    judge: tuple[str, ...] = Field(min_length=2)  # not used in the search


_SENTENCES = load_yaml(TypeAdapter(dict[str, Sentences]), "custom_voice_sentences")


def sentences_of(language: str) -> tuple[str, Sentences]:
    """Return the language, or English if it has no sentences, and its sentences."""
    chosen = language if language in _SENTENCES else FALLBACK_LANGUAGE
    return chosen, _SENTENCES[chosen]


@dataclass(frozen=True, slots=True)
class Target:
    """The speaker to imitate. It takes half a megabyte, and is sent to each worker once."""

    embedding: Embedding  # [512], of the recordings that the fit may use
    held_out: Embedding  # [512], of the recordings that only rate the result
    second: Embedding  # [256], of the same recordings by the second encoder
    language: str  # ISO 639-1 code of the sentences
    rows: NDArray[np.float32]  # [510, 256], how the rows of a pack differ from its style
    british: bool = False  # accent of English


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial, independent of all others; some kilobytes, to be sent between processes."""

    number: int  # unique within a fit
    text: str
    style: Style | None  # None: `voice` speaks unchanged
    voice: str | None = None  # key of a stock voice
    pack: bytes | None = None  # speaks where there is no style
    filters: tuple[tuple[float, ...], ...] = ()  # decibels of each band, all for one synthesis
    rate: bool = False  # the first filter is part of the pack; speech is read back and rated
    keep_sound: bool = False


@dataclass(frozen=True, slots=True)
class SpeechRating:
    words: int = 0
    errors: int = 0  # substituted, deleted or inserted
    quality: float | None = None  # mean opinion score


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the trial of the same number."""

    number: int
    embeddings: Embeddings  # [filters, 512] as `embed_both`; one if there are no filters
    spectrum: NDArray[np.float32]  # mean power of the speech in each mel band
    pitches: NDArray[np.float32]  # Hz, of frames that have one
    duration_s: float  # duration of the speech; 0 if there was none
    sample_rate: int  # Hz, of the engine
    rating: SpeechRating = SpeechRating()  # has no words unless the trial requests a rating
    sound: NDArray[np.int16] | None = None  # speech at SPEAKER_SAMPLE_RATE
    second: Embedding | None = None  # embedding by the second encoder, if the trial was rated


@dataclass(frozen=True, slots=True)
class SpeechRaters:
    """The engines that rate speech; blocking."""

    recogniser: STTEngine
    ratings: QualityEngine

    def rate(self, text: str, language: str, pcm: Pcm) -> SpeechRating:
        """Rates a signal, float32 [n] at 16 kHz, that should say `text`."""
        quality = self.ratings.rate(pcm)
        if language not in self.recogniser.capabilities.languages:
            return SpeechRating(quality=quality)
        [transcript] = self.recogniser.transcribe([TranscriptionRequest(pcm, language)])
        transcribed = " ".join(segment.text for segment in transcript.segments)
        return SpeechRating(*word_errors(text, transcribed, language), quality)


def mean_rating(ratings: Sequence[SpeechRating]) -> tuple[float | None, float | None]:
    """Return the word error rate and the quality; None if it was not measured."""
    words = sum(rating.words for rating in ratings)
    scores = [rating.quality for rating in ratings if rating.quality is not None]
    errors = sum(rating.errors for rating in ratings) / words if words else None
    return errors, float(np.mean(scores)) if scores else None


def load_speech_raters() -> SpeechRaters:
    """Load the raters from the weights of this machine. Raises EngineError."""
    store = WeightStore(weights_dir())
    recogniser, _ = load_model(STT, STT_CONFIG, store)
    return SpeechRaters(recogniser, load(QUALITY, QUALITY_CONFIG, store))


def load_second_encoder() -> SpeakerEncoder:
    """Load the second encoder. Raises EngineError."""
    return load(SPEAKER, SECOND_ENCODER_CONFIG, WeightStore(weights_dir()))


def word_errors(text: str, heard: str, language: str) -> tuple[int, int]:
    """Return the number of words of `text`, and how many were substituted, deleted or inserted."""
    reference = words_of(text, language)
    return len(reference), Levenshtein.distance(reference, words_of(heard, language))


def words_of(text: str, language: str) -> list[str]:
    """Return the words of a text without case and punctuation."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(
        char for char in plain if char.isspace() or unicodedata.category(char)[0] in "LNM"
    )
    if language in WITHOUT_SPACES:
        return list(re.sub(r"\s", "", kept))
    return kept.split()


@dataclass(eq=False, repr=False)
class Trials:
    """The engines of a worker process; created once, and used by one thread."""

    _engine: TTSEngine
    _encoder: SpeakerEncoder
    _target: Target
    # Called when they are first needed, which takes seconds.
    _load_raters: Callable[[], SpeechRaters] = load_speech_raters
    _load_second: Callable[[], SpeakerEncoder] = load_second_encoder

    def __post_init__(self) -> None:
        self._raters = once(self._load_raters)
        self._second_encoder = once(self._load_second)

    def run(self, trial: Trial) -> Outcome:
        """Run a trial; blocking, half a second, or 1.5 s if it is rated. Raises EngineError."""
        engine, filters = self._engine, () if trial.rate else trial.filters
        sample_rate = engine.capabilities.sample_rate
        pack = trial.pack
        if trial.style is not None:
            own = trial.filters if trial.rate else ()
            pack = pack_of(self._target, trial.style, own, sample_rate)
        voice = trial.voice or engine.voices()[0].key
        pcm = say(engine, trial.text, voice, self._target.language, pack)
        # Rumble is removed, as on delivery: filters amplified it, which raised the similarity.
        pcm = HighPass(SPEAKER_SAMPLE_RATE).process(pcm)
        engine.release_memory()  # several such processes run beside the service
        if len(pcm) < MIN_SPEECH_S * SPEAKER_SAMPLE_RATE:
            return _silent(trial, sample_rate)
        level = at_level(pcm)
        designed = (taps(np.array(levels), SPEAKER_SAMPLE_RATE) for levels in filters)
        through = [oaconvolve(level, fir, mode="same").astype(np.float32) for fir in designed]
        delivered, second = at_level(through[0] if through else pcm, DELIVERED_DBFS), None
        if trial.rate:
            rating = self._raters().rate(trial.text, self._target.language, delivered)
            second = self._second_encoder().embed(delivered)
        else:
            rating = SpeechRating(quality=self._raters().ratings.rate(delivered))
        sounds = [
            embed_both([at_level(filtered)], [at_level(filtered, DELIVERED_DBFS)], self._encoder)
            for filtered in through or [level]
        ]
        return Outcome(
            number=trial.number,
            embeddings=np.stack(sounds),
            spectrum=mean_spectrum(speech_frames(mel_spectrum(level))),
            pitches=pitches_hz(level[spoken(level)]),
            duration_s=len(pcm) / SPEAKER_SAMPLE_RATE,
            sample_rate=sample_rate,
            rating=rating,
            second=second,
            sound=np.frombuffer(float_to_pcm16(delivered), np.int16) if trial.keep_sound else None,
        )


def say(engine: TTSEngine, text: str, voice: str, language: str, pack: bytes | None) -> Pcm:
    """Return the engine's speech with a voice pack, at SPEAKER_SAMPLE_RATE. Raises EngineError."""
    reference = None if pack is None else PackRef(pack_digest(pack), pack)
    request = SynthesisRequest(text, voice, language, pack=reference)
    pieces = [chunk.pcm for chunk in engine.synthesize(request)]
    pcm = np.concatenate([np.zeros(0, np.float32), *pieces])
    return resample(pcm, engine.capabilities.sample_rate, SPEAKER_SAMPLE_RATE)


def pack_of(
    target: Target, style: Style, filters: Sequence[Sequence[float]], sample_rate: int
) -> bytes:
    """Return a voice pack with the first of the filters, for an engine of that rate."""
    fir = taps(np.array(filters[0]), sample_rate) if filters else None
    rows = np.asarray(style + target.rows, np.float32)
    return write_pack(VoicePack(rows, fir, target.british))


def _silent(trial: Trial, sample_rate: int) -> Outcome:
    """Return the outcome of silence, which is similar to no speaker."""
    words = len(trial.text.split())
    return Outcome(
        number=trial.number,
        embeddings=np.zeros((max(1, len(trial.filters)), SOUND_SIZE), np.float32),
        spectrum=np.zeros(MEL_BANDS, np.float32),
        pitches=np.zeros(0, np.float32),
        duration_s=0.0,
        sample_rate=sample_rate,
        rating=SpeechRating(words, words, 1.0) if trial.rate else SpeechRating(quality=1.0),
    )
