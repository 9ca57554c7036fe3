"""Sounds that make Whisper slow or silent: what they cost, and that repeated words are heard.

The work of the network is counted in tokens, as in `models.stt.whisper.job`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from models.stt.whisper.engine import MAX_TEXT, WhisperEngine
from models.stt.whisper.job import encoding_tokens
from models.weights.store import WeightStore
from tests.models.sounds import speak, sung, wordless

pytestmark = pytest.mark.weights

SECONDS = 10
MOST = 3.0  # times the work for ordinary speech of the same length
CALL, ALIGNMENT = 5.4, 4.0  # tokens that take as long as one of these
ORDINARY = (
    "The ferry stopped in October. When the first snow came, the mayor asked everyone to bring a"
    " lamp to the pier, so that the boat could find its way through the fog. He stayed at the inn"
    " for three weeks, paid for his meals in old coins, and never told anyone why he had come."
)
NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)

# What is said, and a word that its transcript has; speech that repeats itself loops a decoder.
REPEATED = {
    "one word": ("no, " * 12, "no"),
    "one word, often": ("apple " * 24, "apple"),
    "short sentences": ("Yes. " * 24, "yes"),
    "digits": ("Six, six, six, six.", "6"),
    "a sentence": ("It should have been a dresser. " * 8, "dresser"),
    "words between others": ("I said no no no no no no no no no and he left.", "left"),
    "many words between others": (f"I said {'no, ' * 20}and he left.", "left"),
}
SPOKEN = {
    "laughter": "ha " * 40,
    "hesitation": "mmm hmm " * 15,
    "counting": NUMBERS,
    "letters": ", ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ") + ".",
}


def _cut(pcm: Pcm, seconds: float = SECONDS) -> Pcm:
    return np.resize(pcm, round(seconds * STT_SAMPLE_RATE)).astype(np.float32)


def _dialled(seconds: float) -> Pcm:
    """Tones of a telephone's keys (DTMF)."""
    rng, time_s = np.random.default_rng(3), np.arange(round(0.12 * STT_SAMPLE_RATE))
    keys = []
    for _ in range(round(5 * seconds)):
        pair = rng.choice([697, 770, 852, 941]), rng.choice([1209, 1336, 1477])
        tone = sum(np.sin(2 * np.pi * hz * time_s / STT_SAMPLE_RATE) for hz in pair)
        keys += [0.3 * tone, np.zeros(round(0.08 * STT_SAMPLE_RATE))]
    return np.asarray(np.concatenate(keys), np.float32)


# Made of ordinary speech, or of nothing.
MADE: dict[str, Callable[[Pcm], Any]] = {
    "reversed": lambda speech: _cut(speech)[::-1].copy(),
    "very quiet": lambda speech: 0.002 * _cut(speech),
    "clipped": lambda speech: np.clip(50 * _cut(speech), -1, 1),
    "a stuck record": lambda speech: _cut(speech[8000:11200]),
    "several voices": lambda speech: (_cut(speech) + _cut(speech[80_000:])) / 2,
    "fast": lambda speech: _cut(speech, 2 * SECONDS)[::2].copy(),
    "slow": lambda speech: np.repeat(_cut(speech, SECONDS / 2), 2),
    "a click in silence": lambda speech: np.eye(1, SECONDS * STT_SAMPLE_RATE, 80_000)[0],
    "dialling": lambda speech: _dialled(SECONDS),
    "a long vowel": lambda speech: sung(SECONDS, 140),
    "a held note": lambda speech: sung(SECONDS, 440, formants=()),
    "white noise of 28 s": lambda speech: wordless(28)["white noise"],
}
WORDLESS = "white noise", "pink noise", "hum", "clicks", "melody", "chord"
KINDS = [*REPEATED, *SPOKEN, *MADE, *WORDLESS]
FAST = {"one word", "one word, often", "laughter", "a stuck record", "a long vowel", "white noise"}


@dataclass
class Work:
    """Passes of the network, in tokens."""

    model: Any
    tokens: float = 0.0
    lengths: list[int] = field(default_factory=list)  # of the texts of each call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encode(self, features: Any, **options: Any) -> Any:
        self.tokens += encoding_tokens(features.shape[-1] // 2)
        return self.model.encode(features, **options)

    def generate(self, *inputs: Any, **options: Any) -> Any:
        results = self.model.generate(*inputs, **options)
        self.lengths += [len(result.sequences_ids[0]) for result in results]
        self.tokens += CALL + sum(len(result.sequences_ids[0]) for result in results)
        return results

    def align(self, *inputs: Any, **options: Any) -> Any:
        self.tokens += ALIGNMENT
        return self.model.align(*inputs, **options)


@pytest.fixture
def work(engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    work = Work(engine._model)
    for owner, name in ((engine, "_model"), (engine._whisper, "model"), (engine._window, "_model")):
        monkeypatch.setattr(owner, name, work)
    yield work


@pytest.fixture(scope="module")
def ordinary(weights: WeightStore) -> Pcm:
    return speak(ORDINARY, weights)


def text_of(engine: WhisperEngine, pcm: Pcm) -> str:
    request = TranscriptionRequest(pcm, "en", speech=((0, len(pcm)),))
    (transcript,) = engine.transcribe([request])
    return " ".join(segment.text for segment in transcript.segments)


@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_no_sound_takes_more_than_ordinary_speech_three_times(
    engine: WhisperEngine, weights: WeightStore, work: Work, ordinary: Pcm, kind: str
) -> None:
    said, expected = REPEATED.get(kind, (SPOKEN.get(kind, ""), ""))
    if kind in WORDLESS:
        pcm = wordless(SECONDS)[kind]
    else:
        pcm = speak(said, weights) if said else np.asarray(MADE[kind](ordinary), np.float32)
    seconds = min(len(pcm), len(ordinary)) / STT_SAMPLE_RATE
    text_of(engine, ordinary[: round(seconds * STT_SAMPLE_RATE)])
    usual, work.tokens = work.tokens * len(pcm) / STT_SAMPLE_RATE / seconds, 0.0
    text = text_of(engine, pcm)
    assert work.tokens <= MOST * usual, text
    assert max(work.lengths, default=0) <= MAX_TEXT, "nothing ends a call before"
    assert expected in text.lower()


@pytest.mark.parametrize("times", [6, 9, 12, 15])
def test_what_is_said_after_a_long_repetition_is_in_the_text(
    engine: WhisperEngine, weights: WeightStore, times: int
) -> None:
    """A decoder that did not leave the repetition lost it."""
    text = text_of(engine, speak(f"I said {'no ' * times}and he left.", weights)).lower()
    assert text.startswith("i said no") and "and he left" in text
