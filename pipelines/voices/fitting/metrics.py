"""Rates speech: the word errors of a recogniser, and the mean opinion score of DNSMOS."""

import re
import unicodedata
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from configs.settings import weights_dir
from models.audio import Pcm
from models.loading import load, load_model
from models.quality.base import QualityEngine
from models.registry import QUALITY, STT
from models.stt.base import STTEngine, TranscriptionRequest
from models.weights.store import WeightStore

WITHOUT_SPACES = frozenset({"ja", "zh"})  # each character counts as a word
STT_CONFIG, QUALITY_CONFIG = "stt/whisper_base", "quality/dnsmos"


@dataclass(frozen=True, slots=True)
class SpeechRating:
    """Of one sentence."""

    words: int = 0
    errors: int = 0  # substituted, deleted or inserted
    quality: float | None = None  # mean opinion score


@dataclass(frozen=True, slots=True)
class SpeechRaters:
    """Both engines; calls block."""

    recogniser: STTEngine
    ratings: QualityEngine

    def rate(self, text: str, language: str, pcm: Pcm) -> SpeechRating:
        """A signal of float32 [n] at 16 kHz that should say `text`."""
        quality = self.ratings.rate(pcm).overall
        if language not in self.recogniser.capabilities.languages:
            return SpeechRating(quality=quality)
        [transcript] = self.recogniser.transcribe([TranscriptionRequest(pcm, language)])
        heard = " ".join(one.text for one in transcript.segments)
        return SpeechRating(*word_errors(text, heard, language), quality)


def load_speech_raters() -> SpeechRaters:
    """From the weights of this machine. Raises EngineError."""
    store = WeightStore(weights_dir())
    recogniser, _ = load_model(STT, STT_CONFIG, store)
    return SpeechRaters(recogniser, load(QUALITY, QUALITY_CONFIG, store))


def word_errors(text: str, heard: str, language: str) -> tuple[int, int]:
    """The number of words of `text`, and how many were substituted, deleted or inserted."""
    reference = words_of(text, language)
    return len(reference), Levenshtein.distance(reference, words_of(heard, language))


def words_of(text: str, language: str) -> list[str]:
    """Without case and punctuation."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(one for one in plain if one.isspace() or unicodedata.category(one)[0] in "LNM")
    if language in WITHOUT_SPACES:
        return list(re.sub(r"\s", "", kept))
    return kept.split()
