"""Sentences that the transcript of a long recording loses, against faster-whisper with a beam of 5.

`python -m benchmarks.stt.lost_speech [FOLDER]` joins known sentences to recordings of about a
minute: with sentences that are repeated, turns of two voices, voices that overlap, music, and
pauses of 1 to 20 s. The sentences are those of `passages.yaml`, spoken by voices of the service,
and the recordings of FOLDER, which has a folder of them for each speaker; what is said in those is
what faster-whisper hears in each alone. Half of the sentences and of the speakers are for tuning
(`--half tuned`), the other half is held out. A sentence is lost when at least LOST of its words
have no counterpart in the transcript.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import jiwer
import numpy as np
import yaml
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from benchmarks.hardware import hardware
from benchmarks.stt.diarization import SUFFIXES, read_pcm, trimmed
from benchmarks.stt.file import plain_words
from configs.schema.transcription import load_profiles
from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.registry import STT, TTS, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.stt.file import DecodedRecording, TranscriptionPipeline
from tests.local_ports import LocalSTTModel

LOST = 0.75  # of the words of a sentence
SCENE_S = 60.0
ROOM_NOISE = 1e-4
MUSIC = 0.2  # of the level of the speech
OVERLAP_S = (0.2, 0.8)
VOICES = {"tuned": ("af_bella", "am_michael"), "held_out": ("bf_emma", "am_puck")}


@dataclass(frozen=True, slots=True)
class Sentence:
    speaker: str
    pcm: Pcm
    text: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A recording, and what is said in it, in order."""

    kind: str
    pcm: Pcm
    said: tuple[Sentence, ...]


@dataclass(slots=True)
class Tally:
    """What one recogniser made of the scenes."""

    seconds: float = 0.0
    words: int = 0
    deleted: int = 0
    inserted: int = 0
    replaced: int = 0
    lost: list[tuple[str, int, str]] = field(default_factory=list)  # scene, place, sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--half", choices=list(VOICES), default="held_out")
    parser.add_argument("--scenes", type=int, default=2, help="of each kind and source")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print the lost sentences")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    arguments = parser.parse_args()
    store = WeightStore(weights_dir())
    engine, info = load_model(STT, "stt/whisper_base", store)
    ours = TranscriptionPipeline(
        LocalSTTModel(engine, info), AudioDecoder(), load(VAD, "vad/silero", store), load_profiles()
    )
    beam = WhisperModel(
        str(store.folder("whisper-base")), compute_type="int8", cpu_threads=2, local_files_only=True
    )
    sources = [spoken(store, arguments.half)]
    if arguments.folder:
        sources.append(recorded(arguments.folder, arguments.half, beam))
    recognisers = {"antiphon": partial(_ours, ours), "beam": partial(_plain, beam)}
    totals = {kind: {name: Tally() for name in recognisers} for kind in [*arguments.kinds, "all"]}
    for scene in make_scenes(sources, arguments.scenes, arguments.seed, arguments.kinds):
        for name, hear in recognisers.items():
            began = time.perf_counter()
            text = hear(scene.pcm)
            elapsed_s = time.perf_counter() - began
            for kind in (scene.kind, "all"):
                _count(totals[kind][name], scene, text, elapsed_s)
    print(hardware())
    for kind, both in totals.items():
        _print(kind, both, verbose=arguments.verbose and kind != "all")


def spoken(store: WeightStore, half: str) -> list[Sentence]:
    """The sentences of a half, each by one voice of that half."""
    texts = yaml.safe_load(Path(__file__).with_name("passages.yaml").read_text("utf-8"))[half]
    engine, _ = load_model(TTS, "tts/kokoro", store)
    sentences = []
    for number, text in enumerate(texts):
        voice = VOICES[half][number % 2]
        request = SynthesisRequest(text=text, voice=voice, language="en")
        pcm = np.concatenate([chunk.pcm for chunk in engine.synthesize(request)])
        pcm = resample(pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE)
        sentences.append(Sentence(voice, trimmed(pcm), text))
    return sentences


def recorded(folder: Path, half: str, beam: WhisperModel) -> list[Sentence]:
    """The recordings of the speakers of a half."""
    speakers = sorted(path for path in folder.iterdir() if path.is_dir())
    middle = (len(speakers) + 1) // 2
    chosen = speakers[:middle] if half == "tuned" else speakers[middle:]
    sentences = []
    for speaker in chosen:
        for path in sorted(one for one in speaker.iterdir() if one.suffix in SUFFIXES):
            pcm = trimmed(read_pcm(path))
            if len(pcm) < 12 * STT_SAMPLE_RATE:
                sentences.append(Sentence(speaker.name, pcm, _plain(beam, pcm)))
    return sentences


def make_scenes(
    sources: Sequence[Sequence[Sentence]], count: int, seed: int, kinds: Sequence[str]
) -> Iterator[Scene]:
    for kind in kinds:
        for source, sentences in enumerate(sources):
            for number in range(count):
                draw = random.Random(f"{seed} {kind} {source} {number}")
                yield KINDS[kind](sentences, draw)


def _repeats(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    """One in three sentences comes again, at once or after another."""
    said: list[Sentence] = []
    for one in draw.sample(sentences, len(sentences)):
        other = draw.choice(sentences)
        again = draw.choice(([], [], [], [], [one], [one, one], [other, one]))
        said += [one, *again]
    return _joined("repeats", said, lambda: draw.uniform(0.3, 1.2), draw)


def _turns(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    return _joined("turns", _alternating(sentences, draw), lambda: draw.uniform(0.1, 0.5), draw)


def _overlaps(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    return _joined(
        "overlaps", _alternating(sentences, draw), lambda: -draw.uniform(*OVERLAP_S), draw
    )


def _music(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    said = draw.sample(sentences, len(sentences))
    scene = _joined("music", said, lambda: draw.choice((0.4, 0.8, 3.0, 6.0)), draw)
    level = float(np.sqrt(np.mean(np.square(scene.pcm))))
    return Scene(scene.kind, scene.pcm + MUSIC * level * _melody(len(scene.pcm), draw), scene.said)


def _pauses(sentences: Sequence[Sentence], draw: random.Random) -> Scene:
    said = draw.sample(sentences, len(sentences))
    return _joined("pauses", said, lambda: 20 ** draw.random(), draw)


KINDS: dict[str, Callable[[Sequence[Sentence], random.Random], Scene]] = {
    "repeats": _repeats,
    "turns": _turns,
    "overlaps": _overlaps,
    "music": _music,
    "pauses": _pauses,
}


def _alternating(sentences: Sequence[Sentence], draw: random.Random) -> list[Sentence]:
    """The sentences of two speakers in turn."""
    two = draw.sample(sorted({one.speaker for one in sentences}), 2)
    turns = [
        draw.sample(mine := [s for s in sentences if s.speaker == who], len(mine)) for who in two
    ]
    return [one for pair in zip(*turns, strict=False) for one in pair]


def _joined(
    kind: str, said: Sequence[Sentence], pause_s: Callable[[], float], draw: random.Random
) -> Scene:
    """The first sentences, up to SCENE_S, each after a pause; a negative one overlaps."""
    whole = np.zeros(round(3 * SCENE_S * STT_SAMPLE_RATE), np.float32)
    at, used = STT_SAMPLE_RATE // 2, list[Sentence]()
    for one in said:
        pcm = one.pcm * (0.1 / np.sqrt(np.mean(np.square(one.pcm))))
        whole[at : at + len(pcm)] += pcm
        at += len(pcm) + round(pause_s() * STT_SAMPLE_RATE)
        used.append(one)
        if at > SCENE_S * STT_SAMPLE_RATE:
            break
    length = at + STT_SAMPLE_RATE
    noise = np.random.default_rng(draw.randrange(2**32)).standard_normal(length, np.float32)
    return Scene(kind, whole[:length] + ROOM_NOISE * noise, tuple(used))


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


def _ours(pipeline: TranscriptionPipeline, pcm: Pcm) -> str:
    duration_s = len(pcm) / STT_SAMPLE_RATE
    recording = DecodedRecording(
        pcm, duration_s, RecognitionOptions("en"), load_profiles()["general"]
    )
    return asyncio.run(pipeline.transcribe(recording)).text


def _plain(model: WhisperModel, pcm: Pcm) -> str:
    segments, _ = model.transcribe(
        pcm, beam_size=5, language="en", condition_on_previous_text=False
    )
    return " ".join(segment.text.strip() for segment in segments)


def _count(tally: Tally, scene: Scene, text: str, elapsed_s: float) -> None:
    tally.seconds += elapsed_s
    said = [plain_words(one.text, "en").split() for one in scene.said]
    heard = plain_words(text, "en")
    result = jiwer.process_words(" ".join(word for words in said for word in words), heard)
    deleted = np.zeros(sum(map(len, said)), bool)
    for chunk in result.alignments[0]:
        if chunk.type == "delete":
            deleted[chunk.ref_start_idx : chunk.ref_end_idx] = True
    tally.words += len(deleted)
    tally.deleted += result.deletions
    tally.inserted += result.insertions
    tally.replaced += result.substitutions
    at = 0
    for place, words in enumerate(said):
        if words and deleted[at : at + len(words)].mean() >= LOST:
            tally.lost.append((scene.kind, place, " ".join(words)))
        at += len(words)


def _print(kind: str, both: dict[str, Tally], *, verbose: bool) -> None:
    for name, one in both.items():
        shares = [count / one.words for count in (one.deleted, one.inserted, one.replaced)]
        print(
            f"{kind:9} {name:9} {len(one.lost):3} sentences lost, words: {shares[0]:.1%} deleted,"
            f" {shares[1]:.1%} inserted, {shares[2]:.1%} replaced, {one.seconds:.1f} s"
        )
        for _, place, sentence in one.lost if verbose else ():
            print(f"    {place}: {sentence}")
    print(f"{kind:9} {both['beam'].seconds / both['antiphon'].seconds:.2f} times as fast")


if __name__ == "__main__":
    main()
