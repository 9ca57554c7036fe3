"""Whether words said 2 to 15 times stay in transcripts, and sounds without speech stay out.

`python -m benchmarks.stt.repetitions` lets six voices of the service repeat 20 words, alone or
within a sentence, and compares how often a transcript has the word; then it transcribes 200 sounds
without speech: noise, hum, music, drums, silence and babble. Cases are split by hash: those of
`--half tuned` were looked at. Clips are kept in FOLDER, and so are results, under a `--label`, so
that an interrupted run goes on where it stopped.
"""

import asyncio
import hashlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from benchmarks.harness.recognition import file_pipeline, transcribe
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import HALVES, KEPT, KeptResults, noise, speak
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE

WORDS = (
    "no yes stop help go wait please hello okay right never now more water apple again sorry"
    " six knock really"
).split()
COUNTS = range(2, 16)
VOICES = (
    ("tts/hibari", "heart"),
    ("tts/vits", "joe"),
    ("tts/kokoro", "af_heart"),
    ("tts/kokoro", "am_michael"),
    ("tts/kokoro", "bf_emma"),
    ("tts/kokoro", "am_puck"),
)
# The word alone, with commas, as sentences, and between other words.
FORMS = ("{}", "{},", "{}.", "I said {} and he left.")
# Other spellings of what is said.
SPELLINGS = {
    "six": "sick",
    "knock": "nock",
    "right": "write",
    "wait": "weight",
    "okay": "ok",
    "no": "know",
}
WORDLESS = 200
WITHIN = 1
ROOM_NOISE = 1e-4


@dataclass(frozen=True, slots=True)
class Case:
    """A word that a voice repeats."""

    word: str
    count: int
    config: str
    voice: str
    form: str

    @property
    def name(self) -> str:
        kind = FORMS.index(self.form)
        return f"{self.word}-{self.count}-{self.config.split('/')[1]}-{self.voice}-{kind}"

    @property
    def text(self) -> str:
        if "and" in self.form:
            return self.form.format(" ".join([self.word] * self.count))
        return " ".join([self.form.format(self.word)] * self.count)

    def count_in(self, text: str, *, spelled: bool = False) -> int:
        """How often the text has the word; a 6 counts as "six". With `spelled`, counts the
        commonest word of the text instead, since a recogniser may write another word."""
        words = re.findall(r"[^\W\d_]+", text.lower().replace("6", " six "))
        if spelled:
            return max(Counter(words).values(), default=0)
        spellings = {self.word, SPELLINGS.get(self.word, self.word)}
        return sum(word in spellings for word in words)

    def is_right(self, text: str, *, spelled: bool = False) -> bool:
        """Whether the count is right within WITHIN, and the text has the words that follow."""
        ends = "and" not in self.form or " he " in text.lower()
        return abs(self.count_in(text, spelled=spelled) - self.count) <= WITHIN and ends

    def clip(self, folder: Path) -> Pcm:
        """The speech between half a second of room noise, kept in `folder`."""
        path = folder / "clips" / f"{self.name}.npy"
        if not path.exists():
            pcm = speak(self.text, self.voice, config=self.config)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, (np.clip(pcm, -1, 1) * 32767).astype(np.int16))
        pcm = np.pad(np.load(path).astype(np.float32) / 32768, STT_SAMPLE_RATE // 2)
        return np.asarray(pcm + noise(len(pcm), self.count, ROOM_NOISE), np.float32)


def half_of(name: str) -> str:
    return HALVES[0] if hashlib.sha256(name.encode()).digest()[0] % 2 else HALVES[1]


def cases(half: str) -> list[Case]:
    """The cases of a half: each word, count and voice, with one form, in the order of hashes."""
    chosen = []
    for word, count, (config, voice) in product(WORDS, COUNTS, VOICES):
        draw = random.Random(f"{word} {count} {voice}")
        case = Case(word, count, config, voice, draw.choice(FORMS))
        if half_of(case.name) == half:
            chosen.append(case)
    return sorted(chosen, key=lambda case: hashlib.sha256(case.name.encode()).hexdigest())


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path, default=KEPT / "repeats")
    options.add_argument("--half", choices=HALVES, default="held_out")
    options.add_argument("--label", default="now", help="of the results, which are kept under it")
    options.add_argument("--limit", type=int, default=120, help="at most so many repetitions")
    options.add_argument("--verbose", action="store_true", help="print what is wrong")
    arguments = begin(options)
    half = arguments.half
    kept = KeptResults(arguments.folder / f"{arguments.label}.jsonl")
    repetitions = []
    for case in cases(half)[: arguments.limit]:
        clip = partial(case.clip, arguments.folder)
        repetitions.append((case, kept.get(case.name, partial(measured, clip))))
    right = [case.is_right(result["text"], spelled=True) for case, result in repetitions]
    spelled = sum(case.is_right(result["text"]) for case, result in repetitions)
    empty = sum(not result["text"] for _, result in repetitions)
    seconds = sum(result["seconds"] for _, result in repetitions)
    elapsed_s = sum(result["elapsed_s"] for _, result in repetitions)
    print(
        f"{half}: {sum(right)} of {len(right)} repetitions right within {WITHIN} "
        f"({sum(right) / len(right):.1%}), {spelled} in the same word, {empty} empty, "
        f"real_time_factor {elapsed_s / seconds:.3f}"
    )
    for case, result in repetitions:
        if arguments.verbose and not case.is_right(result["text"], spelled=True):
            print(f"    {case.name}: {case.count_in(result['text'])}: {result['text'][:120]}")
    kinds = [list(SOUNDS)[number % len(SOUNDS)] for number in range(WORDLESS)]
    texts = [
        kept.get(f"{kind}-{number}", partial(measured, partial(sound, kind, number)))["text"]
        for number, kind in enumerate(kinds)
        if half_of(f"{kind}-{number}") == half
    ]
    counts = Counter(filter(None, texts))
    print(f"{half}: {counts.total()} of {len(texts)} sounds without speech have a text")
    for text, times in counts.most_common():
        print(f"    {times} times: {text[:120]}")


def measured(clip: Callable[[], Pcm]) -> dict[str, Any]:
    """The transcript of a clip as the service makes those of files, and the core seconds."""
    pcm = clip()
    began = time.process_time()
    text = asyncio.run(transcribe(file_pipeline(), pcm)).text
    elapsed_s = round(time.process_time() - began, 3)
    return {"text": text, "seconds": len(pcm) / STT_SAMPLE_RATE, "elapsed_s": elapsed_s}


def sound(kind: str, number: int) -> Pcm:
    """A sound of 4 to 20 s without a word."""
    rng = np.random.default_rng(number)
    samples = int(rng.uniform(4, 20) * STT_SAMPLE_RATE)
    pcm = np.asarray(SOUNDS[kind](samples, rng), np.float32)
    peak = float(np.abs(pcm).max()) or 1.0
    level = 10 ** (rng.uniform(-40, -3) / 20)
    return np.asarray(pcm / peak * level if kind != "silence" else pcm, np.float32)


def _noise(samples: int, rng: np.random.Generator) -> Any:
    """Noise whose power falls by 0 to 6 dB an octave."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    spectrum[1:] /= np.arange(1, len(spectrum)) ** rng.uniform(0, 1)
    return np.fft.irfft(spectrum, samples)


def _silence(samples: int, rng: np.random.Generator) -> Any:
    return rng.choice([0.0, 1e-5, 3e-4]) * rng.standard_normal(samples)


def _hum(samples: int, rng: np.random.Generator) -> Any:
    time_s = np.arange(samples) / STT_SAMPLE_RATE
    base = rng.choice([50, 60, 100, 120])
    tones = [np.sin(2 * np.pi * base * k * time_s) / k for k in range(1, rng.integers(2, 12))]
    return sum(tones) + 0.02 * rng.standard_normal(samples)


def _music(samples: int, rng: np.random.Generator) -> Any:
    """Plucked or held chords."""
    note = np.arange(int(rng.uniform(0.2, 1.0) * STT_SAMPLE_RATE)) / STT_SAMPLE_RATE
    decay = rng.uniform(0, 5)
    notes: list[NDArray[np.float64]] = []
    while sum(map(len, notes)) < samples:
        root = 110 * 2 ** (rng.integers(0, 25) / 12)
        chord = root * 2 ** (np.array([0, rng.choice([3, 4]), 7, 12]) / 12)
        tones = sum(np.sin(2 * np.pi * hz * k * note) / k**2 for hz in chord for k in (1, 2, 3))
        notes.append(tones * np.exp(-decay * note) * np.minimum(1, 50 * (note[-1] - note)))
    return np.concatenate(notes)[:samples]


def _drums(samples: int, rng: np.random.Generator) -> Any:
    beat = int(rng.uniform(0.15, 0.6) * STT_SAMPLE_RATE)
    time_s = np.arange(beat) / STT_SAMPLE_RATE
    track: list[NDArray[np.float64]] = []
    while sum(map(len, track)) < samples:
        kick = np.sin(2 * np.pi * (50 + 100 * np.exp(-30 * time_s)) * time_s)
        snare = rng.standard_normal(beat)
        weight = rng.random()
        track.append((weight * kick + (1 - weight) * snare) * np.exp(-rng.uniform(8, 30) * time_s))
    return np.concatenate(track)[:samples]


def _babble(samples: int, rng: np.random.Generator) -> Any:
    """Eight at once who hum vowels: no word is in it."""
    return sum(_vowels(samples, rng) for _ in range(8))


def _vowels(samples: int, rng: np.random.Generator) -> Any:
    time_s = np.arange(samples) / STT_SAMPLE_RATE
    pitch_hz = rng.uniform(90, 240) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(0.3, 1) * time_s))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / STT_SAMPLE_RATE
    voice = np.sum([np.sin(k * phase) / k for k in range(1, 20)], axis=0)
    pieces = []
    start = 0
    while start < samples:
        piece = voice[start : start + int(rng.uniform(0.1, 0.4) * STT_SAMPLE_RATE)]
        for low_hz, high_hz in ((300, 800), (900, 2300)):
            radius = np.exp(-np.pi * 100 / STT_SAMPLE_RATE)
            angle = 2 * np.pi * rng.uniform(low_hz, high_hz) / STT_SAMPLE_RATE
            piece = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], piece)
        pieces.append(piece * np.hanning(len(piece)) * rng.random())
        start += len(piece)
    return np.concatenate(pieces)


SOUNDS: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "noise": _noise,
    "silence": _silence,
    "hum": _hum,
    "music": _music,
    "drums": _drums,
    "babble": _babble,
}


if __name__ == "__main__":
    main()
