"""Sentences that the transcript of a long recording loses, against faster-whisper with a beam of 5.

`python -m benchmarks.stt.lost_speech [FOLDER]` joins known sentences to recordings of about a
minute: with sentences that are repeated, turns of two voices, voices that overlap, music, and
pauses of 1 to 20 s. The sentences are those of `passages.yaml`, spoken by voices of the service,
and the recordings of FOLDER, which has a folder for each speaker; their texts are what
faster-whisper hears in each recording by itself. Half of the sentences and of the speakers are for
tuning (`--half tuned`), the other half is held out. A sentence is lost when at least LOST of its
words have no counterpart in the transcript.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jiwer
import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.harness.recognition import file_pipeline, transcribe
from benchmarks.harness.recordings import faster_whisper, recorded_sentences, transcribe_plainly
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import HALVES, Sentence, noise, plain_words, spoken_passages
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from pipelines.stt.file import TranscriptionPipeline

SEED = 1  # the scenes of docs/performance.md
LOST = 0.75  # of the words of a sentence
SCENE_S = 60.0
ROOM_NOISE = 1e-4
MUSIC = 0.2  # of the level of the speech
OVERLAP_S = (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Scene:
    """A recording, and what is said in it, in order."""

    kind: str
    pcm: Pcm
    sentences: tuple[Sentence, ...]


@dataclass(slots=True)
class Tally:
    """What one recogniser made of the scenes."""

    seconds: float = 0.0
    words: int = 0
    deleted: int = 0
    inserted: int = 0
    replaced: int = 0
    lost: list[tuple[str, int, str]] = field(default_factory=list)  # scene, place, sentence

    def count(self, scene: Scene, text: str, elapsed_s: float) -> None:
        self.seconds += elapsed_s
        spoken = [plain_words(sentence.text).split() for sentence in scene.sentences]
        words = [word for sentence in spoken for word in sentence]
        result = jiwer.process_words(" ".join(words), plain_words(text))
        deleted = np.zeros(len(words), bool)
        for chunk in result.alignments[0]:
            if chunk.type == "delete":
                deleted[chunk.ref_start_idx : chunk.ref_end_idx] = True
        self.words += len(words)
        self.deleted += result.deletions
        self.inserted += result.insertions
        self.replaced += result.substitutions
        start = 0
        for place, sentence in enumerate(spoken):
            end = start + len(sentence)
            if sentence and deleted[start:end].mean() >= LOST:
                self.lost.append((scene.kind, place, " ".join(sentence)))
            start = end


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--half", choices=HALVES, default="held_out")
    options.add_argument("--scenes", type=int, default=2, help="of each kind and source")
    options.add_argument("--verbose", action="store_true", help="print the lost sentences")
    arguments = begin(options)
    sources = [passages(arguments.half)]
    if arguments.folder:
        sources.append(recorded_sentences(arguments.folder, arguments.half))
    recognisers: dict[str, Callable[[Pcm], str]] = {
        "antiphon": partial(_transcribe, file_pipeline()),
        "beam": partial(transcribe_plainly, faster_whisper()),
    }
    totals = {kind: {name: Tally() for name in recognisers} for kind in [*KINDS, "all"]}
    for scene in make_scenes(sources, arguments.scenes):
        for name, recognise in recognisers.items():
            began = time.perf_counter()
            text = recognise(scene.pcm)
            elapsed_s = time.perf_counter() - began
            for kind in (scene.kind, "all"):
                totals[kind][name].count(scene, text, elapsed_s)
    for kind, tallies in totals.items():
        _print(kind, tallies, verbose=arguments.verbose and kind != "all")


def passages(half: str) -> list[Sentence]:
    """The sentences of `passages.yaml` of a half, by voices of the service."""
    texts = yaml.safe_load(Path(__file__).with_name("passages.yaml").read_text("utf-8"))
    return spoken_passages(texts[half], half)


def _transcribe(pipeline: TranscriptionPipeline, pcm: Pcm) -> str:
    return asyncio.run(transcribe(pipeline, pcm)).text


def make_scenes(sources: Sequence[Sequence[Sentence]], count: int) -> Iterator[Scene]:
    for kind, make in KINDS.items():
        for source, sentences in enumerate(sources):
            for number in range(count):
                yield make(sentences, random.Random(f"{SEED} {kind} {source} {number}"))


def _repeats(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    """One in three sentences comes again, at once or after another."""
    order: list[Sentence] = []
    for sentence in draw.sample(sentences, len(sentences)):
        other = draw.choice(sentences)
        again = draw.choice(([], [], [], [], [sentence], [sentence, sentence], [other, sentence]))
        order += [sentence, *again]
    return _joined("repeats", order, lambda: draw.uniform(0.3, 1.2), draw)


def _turns(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    return _joined("turns", _alternating(sentences, draw), lambda: draw.uniform(0.1, 0.5), draw)


def _overlaps(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    order = _alternating(sentences, draw)
    return _joined("overlaps", order, lambda: -draw.uniform(*OVERLAP_S), draw)


def _music(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    order = draw.sample(sentences, len(sentences))
    scene = _joined("music", order, lambda: draw.choice((0.4, 0.8, 3.0, 6.0)), draw)
    level = float(np.sqrt(np.mean(np.square(scene.pcm))))
    pcm = scene.pcm + MUSIC * level * _melody(len(scene.pcm), draw)
    return Scene(scene.kind, pcm, scene.sentences)


def _pauses(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    order = draw.sample(sentences, len(sentences))
    return _joined("pauses", order, lambda: 20 ** draw.random(), draw)


KINDS: dict[str, Callable[[Sequence[Sentence], random.Random], Scene]] = {
    "repeats": _repeats,
    "turns": _turns,
    "overlaps": _overlaps,
    "music": _music,
    "pauses": _pauses,
}


def _alternating(sentences: Sequence[Sentence], draw: random.Random) -> list[Sentence]:
    """The sentences of two speakers in turn."""
    speakers = draw.sample(sorted({sentence.speaker for sentence in sentences}), 2)
    turns = []
    for speaker in speakers:
        own = [sentence for sentence in sentences if sentence.speaker == speaker]
        turns.append(draw.sample(own, len(own)))
    return [sentence for pair in zip(*turns, strict=False) for sentence in pair]


def _joined(
    kind: str, order: Sequence[Sentence], pause_s: Callable[[], float], draw: random.Random
) -> Scene:
    """The first sentences, up to SCENE_S, each after a pause; a negative one overlaps."""
    pcm = np.zeros(round(3 * SCENE_S * STT_SAMPLE_RATE), np.float32)
    start = STT_SAMPLE_RATE // 2
    used: list[Sentence] = []
    for sentence in order:
        speech = sentence.pcm * (0.1 / np.sqrt(np.mean(np.square(sentence.pcm))))
        pcm[start : start + len(speech)] += speech
        start += len(speech) + round(pause_s() * STT_SAMPLE_RATE)
        used.append(sentence)
        if start > SCENE_S * STT_SAMPLE_RATE:
            break
    length = start + STT_SAMPLE_RATE
    room = noise(length, draw.randrange(2**32), ROOM_NOISE)
    return Scene(kind, pcm[:length] + room, tuple(used))


def _melody(samples: int, draw: random.Random) -> Pcm:
    """Chords of plucked notes, of a level of 1."""
    note_s = 0.5
    time_s = np.arange(round(note_s * STT_SAMPLE_RATE)) / STT_SAMPLE_RATE
    notes: list[NDArray[np.floating]] = []
    while sum(map(len, notes)) < samples:
        root = draw.choice((110.0, 130.8, 146.8, 164.8))
        chord = [root, root * 1.26, root * 1.5, root * draw.choice((2, 3, 4))]
        tones = sum(
            np.sin(2 * np.pi * hz * k * time_s) / k**2 for hz in chord for k in (1, 2, 3, 4)
        )
        notes.append(tones * np.exp(-3 * time_s))
    melody = np.concatenate(notes)[:samples]
    return np.asarray(melody / np.sqrt(np.mean(np.square(melody))), np.float32)


def _print(kind: str, tallies: Mapping[str, Tally], *, verbose: bool) -> None:
    for name, tally in tallies.items():
        print(
            f"{kind:9} {name:9} {len(tally.lost):3} sentences lost, words: "
            f"{tally.deleted / tally.words:.1%} deleted, {tally.inserted / tally.words:.1%} "
            f"inserted, {tally.replaced / tally.words:.1%} replaced, {tally.seconds:.1f} s"
        )
        for _, place, sentence in tally.lost if verbose else ():
            print(f"    {place}: {sentence}")
    print(f"{kind:9} {tallies['beam'].seconds / tallies['antiphon'].seconds:.2f} times as fast")


if __name__ == "__main__":
    main()
