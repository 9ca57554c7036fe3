"""Diarization error rate on conversations mixed from recordings of single speakers.

`python -m benchmarks.stt.diarization FOLDER` takes a folder with one folder of recordings a
speaker. It mixes conversations of some of them, with turns of 1.5 to 8 s and pauses of 0.2 to 1 s,
and prints the diarization error rate: the share of speech time that was missed, invented or given
to the wrong speaker, 0.25 s around each change set aside. It does so for the whole file, and for
the labels of a live session's finals. `--finals` plays the mixes in real time to sessions with
labels and without, and prints how late their finals are.

`--three-turns` makes that many clips, each with three turns (about 8, 4 and 6 s) of two people, and
counts how often one speaker is found, or more than two; a hash tells whether a clip is tuned or
held out.

The thresholds of `pipelines.stt.diarization` were chosen on the speakers 1998 and 2033 of
LibriSpeech: clean, with noise, over a telephone's band, and without pauses. `--only` names the
speakers that are mixed, so that those and the others are measured apart.
"""

import argparse
import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, cycle, permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.harness.recognition import (
    LIVE_ENGLISH,
    bare_engine,
    file_pipeline,
    live_pipeline,
    live_session,
    model_info,
    play,
    transcribe,
)
from benchmarks.harness.recordings import recordings_by_speaker
from benchmarks.harness.report import begin, p50_p95, parser
from benchmarks.harness.speech import HALVES, half_of, levels, noise, silence, store, trimmed
from models.audio import Pcm
from models.registry import SPEAKER, load
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import LiveEvent, LiveTranscript
from pipelines.stt.file import FileTranscript
from pipelines.stt.live_speakers import SpeakerOptions
from tests.local_ports import LocalSTTModel

TURN_S = (1.5, 8.0)
PAUSE_S = (0.2, 1.0)
COLLAR_S = 0.25
MIX_S = 60.0  # of each mix, about
MIXES = 10  # at most, of each number of speakers
SEED = 1
STEP_S = 0.01
SEARCH_S = 0.4  # a turn ends at the quietest place within this time of its drawn end
WITH_SPEAKERS = RecognitionOptions("en", speakers=True)
Recordings = Mapping[str, list[Pcm]]
"""Recordings by speaker."""


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


@dataclass(frozen=True, slots=True)
class Score:
    """Error times in seconds, the number of speakers, and the number that was found."""

    speech: float
    missed: float
    invented: float
    confused: float
    speakers: int
    found: int

    @property
    def error_rate(self) -> float:
        return (self.missed + self.invented + self.confused) / self.speech


class Recogniser:
    """The recogniser with labels of speakers, for files and for live sessions."""

    def __init__(self) -> None:
        encoder = load(SPEAKER, "speaker/resemblyzer", store())
        model = LocalSTTModel(bare_engine(), model_info(), encoder)
        self.speakers = SpeakerOptions(encoder)
        self._files = file_pipeline(model)
        self._sessions = live_pipeline(model)

    def transcribe(self, pcm: Pcm) -> tuple[Turn, ...]:
        """The turns of a recording."""
        transcript = asyncio.run(transcribe(self._files, pcm, WITH_SPEAKERS))
        return turns_of(transcript)

    def listen(
        self, pcm: Pcm, speakers: SpeakerOptions | None, *, in_real_time: bool = False
    ) -> list[LiveTranscript]:
        """The finals of a session that hears a signal."""
        return asyncio.run(self._listen(pcm, speakers, in_real_time))

    async def _listen(
        self, pcm: Pcm, speakers: SpeakerOptions | None, in_real_time: bool
    ) -> list[LiveTranscript]:
        finals: list[LiveTranscript] = []

        async def emit(event: LiveEvent) -> None:
            if isinstance(event, LiveTranscript) and event.final and event.text:
                finals.append(event)

        options = SessionOptions(LIVE_ENGLISH, speakers=speakers)
        async with live_session(self._sessions, options, emit) as session:
            await play(session, pcm, step_s=0.1, in_real_time=in_real_time)
        return finals


def main() -> None:
    arguments = _parse()
    recordings = recordings_by_speaker(arguments.folder, arguments.only)
    recogniser = Recogniser()
    if arguments.three_turns:
        count_speakers(recogniser, recordings, arguments.three_turns)
    else:
        measure(recogniser, recordings, arguments)


def _parse() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", nargs="+", help="names of speakers")
    options.add_argument("--speakers", type=int, nargs="+", default=[1, 2, 3, 4], help="in a mix")
    options.add_argument("--finals", action="store_true", help="also in real time")
    options.add_argument("--three-turns", type=int, default=0, help="number of clips")
    return begin(options)


def measure(recogniser: Recogniser, recordings: Recordings, arguments: argparse.Namespace) -> None:
    file_scores: dict[int, list[Score]] = defaultdict(list)
    live_scores: dict[int, list[Score]] = defaultdict(list)
    late_s: dict[bool, list[float]] = {True: [], False: []}
    for names in groups(sorted(recordings), arguments.speakers):
        draw = random.Random(f"{SEED} {' '.join(names)}")
        mix = mix_turns({name: recordings[name] for name in names}, MIX_S, draw)
        file_score = score_of(mix.turns, recogniser.transcribe(mix.pcm))
        file_scores[file_score.speakers].append(file_score)
        finals = recogniser.listen(mix.pcm, recogniser.speakers)
        live_score = score_of(mix.turns, live_turns(finals))
        live_scores[live_score.speakers].append(live_score)
        if arguments.finals:
            ways = (None, recogniser.speakers)
            for speakers in ways if len(late_s[True]) % 2 else reversed(ways):
                finals = recogniser.listen(mix.pcm, speakers, in_real_time=True)
                late_s[speakers is not None] += [final.latency_s for final in finals]
    for title, scores in (("file", file_scores), ("live", live_scores)):
        for count, some in sorted(scores.items()):
            report(f"{title}, {count} speakers", some)
        several = [score for number, some in scores.items() if number > 1 for score in some]
        report(f"{title}, two and more", several)
    for has_labels, seconds in late_s.items() if arguments.finals else ():
        name = "with" if has_labels else "without"
        print(f"finals {name} labels: {len(seconds)}, {p50_p95(seconds)} late")


def groups(names: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """At most MIXES groups of each number of speakers."""
    for size in sizes:
        all_groups = list(combinations(names, size))
        random.Random(SEED).shuffle(all_groups)
        yield from all_groups[:MIXES]


def report(title: str, scores: Sequence[Score]) -> None:
    speech = sum(score.speech for score in scores)
    errors = {
        kind: sum(getattr(score, kind) for score in scores) / speech
        for kind in ("missed", "invented", "confused")
    }
    parts = ", ".join(f"{kind} {share:.1%}" for kind, share in errors.items())
    right = sum(score.speakers == score.found for score in scores)
    worst = max(score.error_rate for score in scores)
    print(
        f"{title}: error {sum(errors.values()):.1%} ({parts}), worst mix {worst:.1%},"
        f" number of speakers right in {right} of {len(scores)}"
    )


def count_speakers(recogniser: Recogniser, recordings: Recordings, clips: int) -> None:
    """Print a line for each clip whose number of speakers is wrong, and the counts."""
    counts: dict[str, Counter[int]] = {half: Counter() for half in HALVES}
    for number, names in zip(range(clips), cycle(permutations(recordings, 2)), strict=False):
        name = f"{number} {' '.join(names)}"
        pcm = three_turns([recordings[speaker] for speaker in names], random.Random(name))
        speakers = len({turn.speaker for turn in recogniser.transcribe(pcm)})
        counts[half_of(name)][speakers] += 1
        if speakers != len(names):
            print(f"{half_of(name)} {name}: {speakers} speakers", flush=True)
    for half, times in counts.items():
        print(f"{half}, clips by the number of speakers found: {dict(sorted(times.items()))}")


def three_turns(recordings: Sequence[Sequence[Pcm]], draw: random.Random) -> Pcm:
    """Two people in turn, the first one twice, with pauses of 0.2 to 0.8 s."""
    sources = [np.concatenate(draw.sample(many, len(many))) for many in recordings]
    used = [0, 0]
    pieces: list[Pcm] = []
    for speaker, turn_s in ((0, (7.0, 9.0)), (1, (3.5, 4.8)), (0, (5.5, 7.0))):
        start = used[speaker]
        end = _quiet_end(sources[speaker], start, draw.uniform(*turn_s))
        used[speaker] = end or len(sources[speaker])
        pieces += [silence(draw.uniform(0.2, 0.8)), trimmed(sources[speaker][start:end])]
    pcm = np.concatenate(pieces)
    return pcm + noise(len(pcm), draw.randrange(2**32), 1e-3)


def mix_turns(recordings: Recordings, seconds: float, draw: random.Random) -> Mix:
    """Turns of the speakers, none twice in a row, until about `seconds` are full."""
    sources = {
        name: np.concatenate(draw.sample(many, len(many))) for name, many in recordings.items()
    }
    used = dict.fromkeys(sources, 0)
    pieces: list[Pcm] = []
    turns: list[Turn] = []
    samples = 0
    last = ""
    while samples < seconds * STT_SAMPLE_RATE:
        speaker = draw.choice([name for name in sources if name != last or len(sources) == 1])
        start = used[speaker]
        end = _quiet_end(sources[speaker], start, draw.uniform(*TURN_S))
        if end is None:
            break
        used[speaker] = end
        last = speaker
        pause = silence(draw.uniform(*PAUSE_S))
        speech = trimmed(sources[speaker][start:end])
        pieces += [pause, speech]
        samples += len(pause)
        start_s = samples / STT_SAMPLE_RATE
        samples += len(speech)
        turns.append(Turn(speaker, start_s, samples / STT_SAMPLE_RATE))
    room = noise(samples, draw.randrange(2**32), 1e-4)
    return Mix(np.concatenate(pieces) + room, tuple(turns))


def _quiet_end(source: Pcm, start: int, seconds: float) -> int | None:
    """A quiet place about `seconds` after `start`; None where the source is used up."""
    earliest = start + round((seconds - SEARCH_S) * STT_SAMPLE_RATE)
    latest = start + round((seconds + SEARCH_S) * STT_SAMPLE_RATE)
    if latest > len(source):
        return None
    smooth = np.convolve(levels(source[earliest:latest]), np.ones(3), "same")
    return earliest + int(smooth[1:-1].argmin() + 1) * (STT_SAMPLE_RATE // 50)


def turns_of(transcript: FileTranscript) -> tuple[Turn, ...]:
    assert transcript.utterances is not None
    return tuple(Turn(part.speaker, part.start, part.end) for part in transcript.utterances)


def live_turns(finals: Sequence[LiveTranscript]) -> list[Turn]:
    """The turns of the finals; as in a file, a turn ends where another speaker begins."""
    turns: list[Turn] = []
    for part in (turn for final in finals for turn in final.turns):
        if turns and turns[-1].speaker == part.speaker:
            turns[-1] = replace(turns[-1], end=part.end)
        else:
            turns.append(Turn(part.speaker, part.start, part.end))
    return turns


def score_of(reference: Sequence[Turn], guessed: Sequence[Turn]) -> Score:
    """The score of the best speaker mapping; excludes COLLAR_S around changes of the reference."""
    steps = round(max(turn.end for turn in [*reference, *guessed]) / STEP_S) + 1
    counted = np.ones(steps, bool)
    for turn in reference:
        for edge in (turn.start, turn.end):
            counted[_step(edge - COLLAR_S) : _step(edge + COLLAR_S)] = False
    truth = _activity(reference, steps)[:, counted]
    guess = _activity(guessed, steps)[:, counted]
    together = truth.astype(np.int64) @ guess.T.astype(np.int64)
    rows, columns = linear_sum_assignment(together, maximize=True)
    right = together[rows, columns].sum()
    speech = truth.any(axis=0)
    claimed = guess.any(axis=0)
    return Score(
        speech=speech.sum() * STEP_S,
        missed=(speech & ~claimed).sum() * STEP_S,
        invented=(claimed & ~speech).sum() * STEP_S,
        confused=((speech & claimed).sum() - right) * STEP_S,
        speakers=len({turn.speaker for turn in reference}),
        found=len({turn.speaker for turn in guessed}),
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


if __name__ == "__main__":
    main()
