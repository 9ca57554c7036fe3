"""The time of the recogniser with prompts of any kind, and whether they come out as text.

`python -m benchmarks.stt.prompts FOLDER` transcribes recordings as the service does those of files,
each with every prompt of `prompts.yaml` and, right before or after it, without one: the figures are
ratios of the processor times of such pairs. Half of the prompts and of the recordings are for
tuning, the other half is held out. A prompt leaks if a place where it changes the
transcript has two of its words in a row, or one of its words that is neither said nor in the
transcript without the prompt. Word errors are against faster-whisper with a beam of 5.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jiwer
import yaml

from benchmarks.harness.recognition import file_pipeline, transcribe
from benchmarks.harness.recordings import (
    audio_files,
    faster_whisper,
    read_pcm,
    transcribe_plainly,
    word_error_rate,
)
from benchmarks.harness.report import begin, parser, percentile
from benchmarks.harness.speech import plain_words
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from pipelines.stt.file import TranscriptionPipeline

LONGEST_S = 20.0  # of a recording
TERMS = "terms: "  # begins key terms in place of a prompt


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    pcm: Pcm
    reference: str  # by a beam of 5


@dataclass(frozen=True, slots=True)
class Trial:
    """A recording with a prompt, and without."""

    half: str  # of prompt and recording, if it is the same
    kind: str  # of the prompt
    recording: Recording
    plain: str  # the texts
    prompted: str
    leaked: str
    ratio: float  # of the times on a processor


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--recordings", type=int, default=10)
    options.add_argument("--half", choices=["tuned", "held_out", "both"], default="both")
    arguments = begin(options)
    pipeline = file_pipeline()
    halves = yaml.safe_load(Path(__file__).with_name("prompts.yaml").read_text("utf-8"))
    recordings = _recordings(arguments.folder, arguments.recordings)
    trials: list[Trial] = []
    _transcribe(pipeline, recordings[0].pcm, "")  # warm
    for half, prompts in halves.items():
        for kind, prompt in prompts.items():
            for number, recording in enumerate(recordings):
                own = ("tuned", "held_out")[number % 2]
                if arguments.half not in ("both", half) or arguments.half not in ("both", own):
                    continue
                text = prompt["text"].replace("{speech}", recording.reference)
                trial = _try(
                    pipeline,
                    recording,
                    half if half == own else "mixed",
                    kind,
                    text * prompt.get("repeat", 1),
                    prompt_first=len(trials) % 2 == 1,
                )
                trials.append(trial)
    for half in ("tuned", "held_out", "all"):
        if some := [trial for trial in trials if half in (trial.half, "all")]:
            _print(half, some)
    for kind in dict.fromkeys(trial.kind for trial in trials):
        _print(f"    {kind}", [trial for trial in trials if trial.kind == kind])


def _recordings(folder: Path, count: int) -> list[Recording]:
    """Short recordings of all speakers in turn; those of one speaker have a folder."""
    paths = audio_files(folder)
    speakers = sorted({path.parent for path in paths} - {folder})
    in_turn = zip(
        *([path for path in paths if path.parent == speaker] for speaker in speakers), strict=False
    )
    model = faster_whisper()
    recordings: list[Recording] = []
    for path in [
        *(path for path in paths if path.parent == folder),
        *(path for turn in in_turn for path in turn),
    ]:
        pcm = read_pcm(path)
        if len(recordings) < count and len(pcm) <= LONGEST_S * STT_SAMPLE_RATE:
            recordings.append(Recording(path.stem, pcm, transcribe_plainly(model, pcm)))
    return recordings


def _try(
    pipeline: TranscriptionPipeline,
    recording: Recording,
    half: str,
    kind: str,
    prompt: str,
    *,
    prompt_first: bool,
) -> Trial:
    texts: dict[str, str] = {}
    times_s: dict[str, float] = {}
    for given in (prompt, "") if prompt_first else ("", prompt):
        began = time.process_time()
        texts[given] = _transcribe(pipeline, recording.pcm, given)
        times_s[given] = time.process_time() - began
    return Trial(
        half=half,
        kind=kind,
        recording=recording,
        plain=texts[""],
        prompted=texts[prompt],
        leaked=leak_of(prompt, recording.reference, texts[""], texts[prompt]),
        ratio=times_s[prompt] / times_s[""],
    )


def _transcribe(pipeline: TranscriptionPipeline, pcm: Pcm, prompt: str) -> str:
    terms = tuple(prompt.removeprefix(TERMS).split(", ")) if prompt.startswith(TERMS) else ()
    options = RecognitionOptions(language="en", prompt="" if terms else prompt, keyterms=terms)
    return asyncio.run(transcribe(pipeline, pcm, options, options.profile)).text


def leak_of(prompt: str, reference: str, plain: str, prompted: str) -> str:
    """The words of the prompt that are in its transcript, but neither said nor in the plain one."""
    given = plain_words(prompt).split()
    spoken = plain_words(reference).split()
    pairs = {*pairwise(given)} - {*pairwise(spoken)}
    expected = {*spoken, *plain_words(plain).split()}
    words = plain_words(prompted).split()
    leaked: list[str] = []
    alignment = jiwer.process_words(plain_words(plain or reference) or "-", " ".join(words) or "-")
    for chunk in alignment.alignments[0]:
        others = words[chunk.hyp_start_idx : chunk.hyp_end_idx] if chunk.type != "equal" else []
        for place, word in enumerate(others):
            pair = (word, *others[place + 1 : place + 2])
            if pair in pairs:
                leaked += pair
            elif word in given and word not in expected and len(word) > 3:
                leaked.append(word)
    return " ".join(leaked)


def _print(name: str, trials: Sequence[Trial]) -> None:
    ratios = [trial.ratio for trial in trials]
    references = [trial.recording.reference for trial in trials]
    plain = word_error_rate(references, [trial.plain for trial in trials])
    prompted = word_error_rate(references, [trial.prompted for trial in trials])
    print(
        f"{name}: {len(trials)} pairs, time {percentile(ratios, 50):.2f} at the median,"
        f" {percentile(ratios, 95):.2f} at the 95th percentile, {max(ratios):.2f} at most;"
        f" {sum(bool(trial.leaked) for trial in trials)} leaked;"
        f" word errors without {plain:.1%}, with {prompted:.1%}"
    )


if __name__ == "__main__":
    main()
