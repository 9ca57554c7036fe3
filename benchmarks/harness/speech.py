"""Sentences by the service's voices for recognisers, and results that are kept between runs."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.base import ModelInfo
from models.registry import TTS, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore

SENTENCES_FILE = Path(__file__).parents[1] / "sentences.yaml"
QUIET = 0.05  # level, relative to the loudest 20 ms, below which both ends are silence
HALVES = ("tuned", "held_out")
KEPT = weights_dir() / "benchmarks"  # what programs keep between runs


@cache
def store() -> WeightStore:
    return WeightStore(weights_dir())


@cache
def voices(config: str) -> tuple[TTSEngine, ModelInfo]:
    """The engine of a configuration of speech, and what it is."""
    return load_model(TTS, config, store())


def whole_speech(engine: TTSEngine, request: SynthesisRequest) -> Pcm:
    """All chunks of a text in one, float32 [n] at the rate of the engine."""
    return np.concatenate([chunk.pcm for chunk in engine.synthesize(request)])


def speak(text: str, voice: str, language: str = "en", config: str = "tts/kokoro") -> Pcm:
    """A sentence by a voice, float32 [n] at STT_SAMPLE_RATE."""
    engine, _ = voices(config)
    pcm = whole_speech(engine, SynthesisRequest(text=text, voice=voice, language=language))
    return resample(pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE)


def english_voice(config: str) -> str:
    """The key of the first English voice of a configuration."""
    _, info = voices(config)
    return next(voice.key for voice in info.voices if voice.language == "en")


def levels(pcm: Pcm) -> NDArray[np.float64]:
    """The level (RMS) of each 20 ms."""
    size = STT_SAMPLE_RATE // 50
    frames = pcm[: len(pcm) // size * size].reshape(-1, size)
    return np.asarray(np.sqrt(np.square(frames, dtype=np.float64).mean(axis=1)))


def trimmed(pcm: Pcm) -> Pcm:
    """Cut the silence at both ends off."""
    level = levels(pcm)
    loud = np.flatnonzero(level > QUIET * level.max())
    size = STT_SAMPLE_RATE // 50
    return pcm[loud[0] * size : (loud[-1] + 1) * size]


def silence(seconds: float) -> Pcm:
    return np.zeros(round(seconds * STT_SAMPLE_RATE), np.float32)


def noise(samples: int, seed: int, level: float) -> Pcm:
    """White noise of an RMS level, the same for each seed."""
    return level * np.random.default_rng(seed).standard_normal(samples, np.float32)


def half_of(name: str) -> str:
    """`tuned`, on which choices may be made, or `held_out`: drawn by a hash of the name."""
    return HALVES[0] if sha256(name.encode()).digest()[-1] % 2 else HALVES[1]


def plain_words(text: str, language: str = "en") -> str:
    """Lower case without marks; characters count as words where there are no spaces."""
    words = re.sub(r"[^\w' ]+", " ", text.lower()).split()
    return " ".join("".join(words)) if language in ("zh", "ja", "th") else " ".join(words)


@dataclass(frozen=True, slots=True)
class Sentence:
    """What a speaker says."""

    speaker: str
    pcm: Pcm
    text: str


PASSAGE_VOICES = {"tuned": ("af_bella", "am_michael"), "held_out": ("bf_emma", "am_puck")}


def spoken_passages(texts: Sequence[str], half: str) -> list[Sentence]:
    """The sentences of a half, each by one voice of that half."""
    sentences = []
    for number, text in enumerate(texts):
        voice = PASSAGE_VOICES[half][number % 2]
        sentences.append(Sentence(voice, trimmed(speak(text, voice)), text))
    return sentences


class KeptResults:
    """Results by their names in a file of JSON lines, so that an interrupted run goes on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._results: dict[str, Any] = {}
        if file.exists():
            for line in file.read_text("utf-8").splitlines():
                self._results |= json.loads(line)

    def get(self, name: str, work: Callable[[], Any]) -> Any:
        """The kept result of that name, or the new one of `work`, which is kept."""
        if name not in self._results:
            self._results[name] = work()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                line = json.dumps({name: self._results[name]}, ensure_ascii=False)
                file.write(line + "\n")
        return self._results[name]

    def items(self) -> Iterator[tuple[str, Any]]:
        yield from self._results.items()


def concatenated(pieces: Iterable[Pcm]) -> Pcm:
    return np.concatenate([np.zeros(0, np.float32), *pieces])
