"""Whether speech is understood and sounds natural: a recogniser and a network that rates sound."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from configs.settings import weights_dir
from models.audio import Pcm
from models.loading import load_quality, load_stt
from models.quality.base import QualityEngine
from models.stt.base import STTEngine, TranscriptionRequest
from models.weights.store import WeightStore

WITHOUT_SPACES = frozenset({"ja", "zh"})  # each character counts as a word
STT_CONFIG, QUALITY_CONFIG = "stt/whisper_base", "quality/dnsmos"


@dataclass(frozen=True, slots=True)
class SpeechRating:
    """Of one sentence."""

    words: int = 0
    errors: int = 0  # heard otherwise, left out or added
    quality: float | None = None  # mean opinion score


@dataclass(frozen=True, slots=True)
class SpeechRaters:
    """Both engines; calls block."""

    recogniser: STTEngine
    ratings: QualityEngine

    def judge(self, text: str, language: str, pcm: Pcm) -> SpeechRating:
        """A signal of float32 [n] at 16 kHz that should say `text`."""
        quality = self.ratings.rate(pcm).overall
        if language not in self.recogniser.languages:
            return SpeechRating(quality=quality)
        [transcript] = self.recogniser.transcribe([TranscriptionRequest(pcm, language)])
        said = words_of(text, language)
        heard = words_of(" ".join(one.text for one in transcript.segments), language)
        return SpeechRating(len(said), edits(said, heard), quality)


def load_speech_raters() -> SpeechRaters:
    """From the weights of this machine. Raises EngineError."""
    store = WeightStore(weights_dir())
    recogniser, _ = load_stt(STT_CONFIG, store)
    return SpeechRaters(recogniser, load_quality(QUALITY_CONFIG, store))


def words_of(text: str, language: str) -> list[str]:
    """Without case and punctuation."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(one for one in plain if one.isspace() or unicodedata.category(one)[0] in "LNM")
    if language in WITHOUT_SPACES:
        return list(re.sub(r"\s", "", kept))
    return kept.split()


def edits(said: Sequence[str], heard: Sequence[str]) -> int:
    """The least number of words to change, leave out or add to make one of the other."""
    row = list(range(len(heard) + 1))
    for index, one in enumerate(said, 1):
        before, row[0] = row[0], index
        for at, other in enumerate(heard, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (one != other))
    return row[-1]
