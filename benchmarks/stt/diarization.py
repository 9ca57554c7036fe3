"""Diarization error rate on conversations mixed from recordings of single speakers.

`python -m benchmarks.stt.diarization FOLDER` takes a folder with one folder of recordings a
speaker. It mixes conversations of some of them, with turns of 1.5 to 8 s and pauses of 0.2 to 1 s,
and prints the diarization error rate: the share of speech time that was missed, invented or given
to the wrong speaker, 0.25 s around each change set aside. It does so for the whole file, and for
the labels that a live session told with its finals. `--finals` plays the mixes in real time to
sessions with labels and without, and prints how late their finals are.

`--three-turns` counts, in that many clips of three turns (8, 4 and 6 s, about) of two people each,
how often they are told as one or as more; clips are tuned or held out by their hash.

The thresholds of `pipelines.stt.diarization` were chosen on the speakers 1998 and 2033 of
LibriSpeech: clean, with noise, over a telephone's band, and without pauses. `--only` names the
speakers that are mixed, so that those and the others are measured apart.
"""

import argparse
import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations, cycle, permutations
from pathlib import Path

import numpy as np
from faster_whisper.audio import decode_audio
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.hardware import hardware
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig, load_profiles
from configs.settings import weights_dir
from models.audio import Pcm
from models.registry import SPEAKER, STT, VAD, load, load_model
from models.speaker.base import SpeakerEncoder
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest, add_voices
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import LiveEvent, LiveTranscript
from pipelines.stt.file import DecodedRecording, FileTranscript, TranscriptionPipeline
from pipelines.stt.live_speakers import SpeakerOptions
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from tests.local_ports import LocalSTTModel

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".m4a")
TURN_S = (1.5, 8.0)
PAUSE_S = (0.2, 1.0)
STEP_SAMPLES = STT_SAMPLE_RATE // 10
COLLAR_S = 0.25
STEP_S = 0.01
SEARCH_S = 0.4  # a turn ends at the quietest place within this time of its drawn end
QUIET = 0.05  # of the loudest 20 ms; below it is silence before and after speech


@dataclass(frozen=True, slots=True)
class Turn:
    """Who speaks when, in seconds."""

    speaker: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Mix:
    """A synthetic conversation mixed from recordings."""

    pcm: Pcm
    turns: tuple[Turn, ...]

    @property
    def speakers(self) -> int:
        return len({turn.speaker for turn in self.turns})


@dataclass(frozen=True, slots=True)
class Score:
    """Error times in seconds, and the number of speakers found."""

    speech: float
    missed: float
    invented: float
    confused: float
    found: int

    @property
    def error_rate(self) -> float:
        return (self.missed + self.invented + self.confused) / self.speech


class TimedTranscriber(LocalSTTModel):
    """A LocalSTTModel that also measures the time of speaker embeddings."""

    voices_s = 0.0
    encoder: SpeakerEncoder

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        transcript = await super().transcribe(replace(request, voice_windows=()))
        if not request.voice_windows:
            return transcript
        began = time.perf_counter()
        transcript = await asyncio.to_thread(add_voices, request, transcript, self.encoder)
        self.voices_s += time.perf_counter() - began
        return transcript


def main() -> None:
    arguments = _parse()
    recordings = {
        folder.name: [
            trimmed(read_pcm(path)) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES
        ]
        for folder in sorted(arguments.folder.iterdir())
        if folder.is_dir() and folder.name in (arguments.only or folder.name)
    }
    print(hardware())
    pipeline, transcriber, listening = _pipeline()
    if arguments.three_turns:
        _count_speakers(pipeline, recordings, arguments.three_turns)
        return
    profile = load_profiles()[arguments.profile]
    audio_s = elapsed_s = 0.0
    scores: dict[int, list[tuple[Mix, Score]]] = {}
    live_scores: dict[int, list[tuple[Mix, Score]]] = {}
    late_s: dict[bool, list[float]] = {True: [], False: []}
    for names in _groups(sorted(recordings), arguments):
        draw = random.Random(f"{arguments.seed} {' '.join(names)}")
        mix = mix_turns({name: recordings[name] for name in names}, arguments.seconds, draw)
        duration_s = len(mix.pcm) / STT_SAMPLE_RATE
        request = RecognitionOptions("en", speakers=True)
        recording = DecodedRecording(mix.pcm, duration_s, request, profile)
        began = time.perf_counter()
        transcript = asyncio.run(pipeline.transcribe(recording))
        elapsed_s += time.perf_counter() - began
        audio_s += duration_s
        score = score_of(mix.turns, turns_of(transcript))
        scores.setdefault(mix.speakers, []).append((mix, score))
        options = SpeakerOptions(transcriber.encoder)
        finals = asyncio.run(listen(listening, mix.pcm, options))
        live = score_of(mix.turns, live_turns(finals))
        live_scores.setdefault(mix.speakers, []).append((mix, live))
        if arguments.finals:
            for speakers in (None, options) if len(late_s[True]) % 2 else (options, None):
                played = asyncio.run(listen(listening, mix.pcm, speakers, paced=True))
                late_s[speakers is not None] += [final.latency_s for final in played]
        if arguments.verbose:
            print(f"{' '.join(names)}: found {score.found}, error {score.error_rate:.1%}", end="; ")
            print(f"live {live.found}, {live.error_rate:.1%}, confused {live.confused:.1f} s")
    for title, found in (("file", scores), ("live", live_scores)):
        for count, scored in sorted(found.items()):
            _print(f"{title}, {count} speakers", scored)
        _print(f"{title}, two and more", [x for n, many in found.items() if n > 1 for x in many])
    for has_labels, seconds in late_s.items() if arguments.finals else ():
        p50, p95 = np.percentile(seconds, [50, 95])
        name = "with" if has_labels else "without"
        print(f"finals {name} labels: {len(seconds)}, p50 {p50:.3f} s, p95 {p95:.3f} s late")
    print(
        f"real_time_factor {elapsed_s / audio_s:.4f}, voices {transcriber.voices_s / audio_s:.4f}"
    )


def _count_speakers(
    pipeline: TranscriptionPipeline, recordings: dict[str, list[Pcm]], clips: int
) -> None:
    """Prints a line for each clip whose number of speakers is wrong, and the counts."""
    profile = load_profiles()["general"]
    counts: dict[str, Counter[int]] = {"tuned": Counter(), "held_out": Counter()}
    for number, names in zip(range(clips), cycle(permutations(recordings, 2)), strict=False):
        key = f"{number} {' '.join(names)}"
        half = "tuned" if sha256(key.encode()).digest()[-1] % 2 else "held_out"
        pcm = three_turns([recordings[name] for name in names], random.Random(key))
        recording = DecodedRecording(
            pcm, len(pcm) / STT_SAMPLE_RATE, RecognitionOptions("en", speakers=True), profile
        )
        turns = turns_of(asyncio.run(pipeline.transcribe(recording)))
        found = len({turn.speaker for turn in turns})
        counts[half][found] += 1
        if found != len(names):
            print(f"{half} {key}: {found} speakers", flush=True)
    for half, found_times in counts.items():
        print(f"{half}, clips by the number of speakers found: {dict(sorted(found_times.items()))}")


def three_turns(recordings: Sequence[Sequence[Pcm]], draw: random.Random) -> Pcm:
    """Two people in turn, the first one twice, with pauses of 0.2 to 0.8 s."""
    sources = [np.concatenate(draw.sample(many, len(many))) for many in recordings]
    used, pieces = [0, 0], list[Pcm]()
    for speaker, turn_s in ((0, (7.0, 9.0)), (1, (3.5, 4.8)), (0, (5.5, 7.0))):
        start = used[speaker]
        end = _quiet_end(sources[speaker], start, draw.uniform(*turn_s))
        used[speaker] = end or len(sources[speaker])
        pause = np.zeros(round(draw.uniform(0.2, 0.8) * STT_SAMPLE_RATE), np.float32)
        pieces += [pause, trimmed(sources[speaker][start:end])]
    joined = np.concatenate(pieces)
    noise = np.random.default_rng(draw.randrange(2**32)).standard_normal(len(joined), np.float32)
    return joined + np.float32(1e-3) * noise


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", help="names of speakers")
    parser.add_argument("--speakers", type=int, nargs="+", default=[1, 2, 3, 4], help="in a mix")
    parser.add_argument("--finals", action="store_true", help="also in real time")
    parser.add_argument("--mixes", type=int, default=10, help="of each number of speakers")
    parser.add_argument("--three-turns", type=int, default=0, help="number of clips")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each mix, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", choices=list(load_profiles()), default="general")
    parser.add_argument("--verbose", action="store_true", help="print a line for each mix")
    return parser.parse_args()


def _pipeline() -> tuple[TranscriptionPipeline, TimedTranscriber, LiveTranscriptionPipeline]:
    weights = WeightStore(weights_dir())
    transcriber = TimedTranscriber(*load_model(STT, "stt/whisper_base", weights))
    transcriber.encoder = load(SPEAKER, "speaker/resemblyzer", weights)
    vad = load(VAD, "vad/silero", weights)
    files = TranscriptionPipeline(transcriber, AudioDecoder(), vad, load_profiles())
    listening = LiveTranscriptionPipeline(transcriber, vad, load_yaml(ListeningConfig, "listening"))
    return files, transcriber, listening


async def listen(
    listening: LiveTranscriptionPipeline,
    pcm: Pcm,
    speakers: SpeakerOptions | None,
    *,
    paced: bool = False,
) -> list[LiveTranscript]:
    """The finals of a session that hears a signal, in real time when `paced`."""
    finals: list[LiveTranscript] = []

    async def emit(event: LiveEvent) -> None:
        if isinstance(event, LiveTranscript) and event.final and event.text:
            finals.append(event)

    session = LiveSession(
        listening,
        SessionOptions(RecognitionOptions(languages=("en",), words=True), speakers=speakers),
        emit,
    )
    running = asyncio.create_task(session.run())
    began = time.monotonic()
    for at in range(0, len(pcm), STEP_SAMPLES):
        await session.accept_pcm(pcm[at : at + STEP_SAMPLES])
        heard_s = (at + STEP_SAMPLES) / STT_SAMPLE_RATE
        await asyncio.sleep(max(0.0, began + heard_s - time.monotonic()) if paced else 0.0)
    await session.finish()
    running.cancel()
    await session.close()
    return finals


def live_turns(finals: Sequence[LiveTranscript]) -> list[Turn]:
    """What was told with the finals; as in a file, a turn ends where another speaker begins."""
    turns: list[Turn] = []
    for one in (turn for final in finals for turn in final.turns):
        if turns and turns[-1].speaker == one.speaker:
            turns[-1] = replace(turns[-1], end=one.end)
        else:
            turns.append(Turn(one.speaker, one.start, one.end))
    return turns


def _groups(names: Sequence[str], arguments: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """At most `--mixes` groups of each number of speakers."""
    for size in arguments.speakers:
        groups = list(combinations(names, size))
        random.Random(arguments.seed).shuffle(groups)
        yield from groups[: arguments.mixes]


def mix_turns(recordings: dict[str, list[Pcm]], seconds: float, draw: random.Random) -> Mix:
    """Turns of the speakers, none twice in a row, until about `seconds` are full."""
    joined = {
        name: np.concatenate(draw.sample(many, len(many))) for name, many in recordings.items()
    }
    used = dict.fromkeys(joined, 0)
    pieces: list[Pcm] = []
    turns: list[Turn] = []
    samples, last = 0, ""
    while samples < seconds * STT_SAMPLE_RATE:
        speaker = draw.choice([name for name in joined if name != last or len(joined) == 1])
        source, start = joined[speaker], used[speaker]
        end = _quiet_end(source, start, draw.uniform(*TURN_S))
        if end is None:
            break
        used[speaker], last = end, speaker
        pause = np.zeros(round(draw.uniform(*PAUSE_S) * STT_SAMPLE_RATE), np.float32)
        turn = trimmed(source[start:end])
        pieces += [pause, turn]
        samples += len(pause)
        turns.append(
            Turn(speaker, samples / STT_SAMPLE_RATE, (samples + len(turn)) / STT_SAMPLE_RATE)
        )
        samples += len(turn)
    room = np.random.default_rng(draw.randrange(2**32))
    noise = 1e-4 * room.standard_normal(samples, np.float32)
    return Mix(np.concatenate(pieces) + noise, tuple(turns))


def turns_of(transcript: FileTranscript) -> tuple[Turn, ...]:
    assert transcript.utterances is not None
    return tuple(Turn(one.speaker, one.start, one.end) for one in transcript.utterances)


def score_of(reference: Sequence[Turn], found: Sequence[Turn]) -> Score:
    """The score of the best speaker mapping; excludes COLLAR_S around changes of the reference."""
    steps = round(max(turn.end for turn in [*reference, *found]) / STEP_S) + 1
    counted = np.ones(steps, bool)
    for turn in reference:
        for edge in (turn.start, turn.end):
            counted[_step(edge - COLLAR_S) : _step(edge + COLLAR_S)] = False
    truth, guess = _activity(reference, steps)[:, counted], _activity(found, steps)[:, counted]
    together = truth.astype(np.int64) @ guess.T.astype(np.int64)
    rows, columns = linear_sum_assignment(together, maximize=True)
    speech, claimed = truth.any(axis=0), guess.any(axis=0)
    right = together[rows, columns].sum()
    return Score(
        speech=speech.sum() * STEP_S,
        missed=(speech & ~claimed).sum() * STEP_S,
        invented=(claimed & ~speech).sum() * STEP_S,
        confused=((speech & claimed).sum() - right) * STEP_S,
        found=len({turn.speaker for turn in found}),
    )


def _step(seconds: float) -> int:
    return max(0, round(seconds / STEP_S))


def _activity(turns: Sequence[Turn], steps: int) -> NDArray[np.bool_]:
    """Whether each speaker speaks in each step, [speakers, steps]."""
    names = sorted({turn.speaker for turn in turns})
    active = np.zeros((len(names), steps), bool)
    for turn in turns:
        active[names.index(turn.speaker), _step(turn.start) : _step(turn.end)] = True
    return active


def read_pcm(path: Path) -> Pcm:
    return np.asarray(decode_audio(str(path), sampling_rate=STT_SAMPLE_RATE), np.float32)


def _levels(pcm: Pcm) -> NDArray[np.float64]:
    """The level of each 20 ms."""
    size = STT_SAMPLE_RATE // 50
    frames = pcm[: len(pcm) // size * size].reshape(-1, size)
    return np.asarray(np.sqrt(np.square(frames, dtype=np.float64).mean(axis=1)))


def trimmed(pcm: Pcm) -> Pcm:
    """Without the silence at both ends."""
    levels = _levels(pcm)
    loud = np.flatnonzero(levels > QUIET * levels.max())
    size = STT_SAMPLE_RATE // 50
    return pcm[loud[0] * size : (loud[-1] + 1) * size]


def _quiet_end(source: Pcm, start: int, seconds: float) -> int | None:
    """A quiet place about `seconds` after `start`; None where the source is used up."""
    earliest = start + round((seconds - SEARCH_S) * STT_SAMPLE_RATE)
    latest = start + round((seconds + SEARCH_S) * STT_SAMPLE_RATE)
    if latest > len(source):
        return None
    smooth = np.convolve(_levels(source[earliest:latest]), np.ones(3), "same")
    return earliest + int(smooth[1:-1].argmin() + 1) * (STT_SAMPLE_RATE // 50)


def _print(title: str, scored: Sequence[tuple[Mix, Score]]) -> None:
    scores = [score for _, score in scored]
    speech = sum(score.speech for score in scores)
    errors = {
        kind: sum(getattr(score, kind) for score in scores) / speech
        for kind in ("missed", "invented", "confused")
    }
    parts = ", ".join(f"{kind} {share:.1%}" for kind, share in errors.items())
    right = sum(mix.speakers == score.found for mix, score in scored)
    worst = max(score.error_rate for score in scores)
    print(
        f"{title}: error {sum(errors.values()):.1%} ({parts}), worst mix {worst:.1%},"
        f" number of speakers right in {right} of {len(scored)}"
    )


if __name__ == "__main__":
    main()
