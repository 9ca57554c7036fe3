"""The time of the recogniser with prompts of any kind, and whether they come out as text.

`python -m benchmarks.stt.prompts FOLDER` transcribes recordings as the service does those of files,
each with every prompt of `prompts.yaml` and, right before or after it, without one: the figures are
ratios of the time on a processor of such pairs. Half of the prompts and of the recordings are for
tuning, the other half is held out. A prompt is leaked when two of its words in a row, or a word of
it that is not said, are in the transcript, in place of others or beside them, and are not there
without it. Word errors are against faster-whisper with a beam of 5.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jiwer
import yaml
from faster_whisper import WhisperModel

from benchmarks.hardware import hardware
from benchmarks.stt.diarization import SUFFIXES, read_pcm
from benchmarks.stt.file import plain_words
from configs.schema.transcription import load_profiles
from configs.settings import weights_dir
from models.audio import Pcm
from models.registry import STT, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.stt.file import DecodedRecording, TranscriptionPipeline
from tests.local_ports import LocalSTTModel

MOST_S = 20.0  # of a recording
TERMS = "terms: "  # begins key terms in place of a prompt


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    pcm: Pcm
    reference: str  # by a beam of 5


@dataclass(frozen=True, slots=True)
class Trial:
    """One recording with a prompt, and without."""

    half: str  # of prompt and recording, if it is the same
    prompt: str  # its kind
    recording: Recording
    plain: str  # the texts
    prompted: str
    leaked: str
    plain_s: float  # on a processor
    prompted_s: float

    @property
    def ratio(self) -> float:
        return self.prompted_s / self.plain_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recordings", type=int, default=10)
    parser.add_argument("--half", choices=["tuned", "held_out", "both"], default="both")
    parser.add_argument("--kinds", nargs="+", help="of prompts; by default all")
    parser.add_argument("--verbose", action="store_true", help="print each trial")
    arguments = parser.parse_args()
    store = WeightStore(weights_dir())
    engine, info = load_model(STT, "stt/whisper_base", store)
    pipeline = TranscriptionPipeline(
        LocalSTTModel(engine, info), AudioDecoder(), load(VAD, "vad/silero", store), load_profiles()
    )
    beam = WhisperModel(
        str(store.folder("whisper-base")), compute_type="int8", cpu_threads=2, local_files_only=True
    )
    halves = yaml.safe_load(Path(__file__).with_name("prompts.yaml").read_text("utf-8"))
    recordings = _recordings(arguments.folder, arguments.recordings, beam)
    trials: list[Trial] = []
    asyncio.run(_hear(pipeline, recordings[0].pcm, ""))  # warm
    for half, prompts in halves.items():
        for kind, prompt in prompts.items():
            if arguments.kinds and kind not in arguments.kinds:
                continue
            for number, recording in enumerate(recordings):
                own = "tuned" if number % 2 == 0 else "held_out"
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
                if arguments.verbose:
                    print(
                        f"{kind} | {recording.name} | {trial.plain_s:.2f} {trial.prompted_s:.2f}"
                        f" {trial.ratio:.2f} | {trial.leaked} | {trial.prompted}",
                        flush=True,
                    )
    print(hardware())
    for half in ("tuned", "held_out", "all"):
        chosen = [one for one in trials if half in (one.half, "all")]
        if chosen:
            _print(half, chosen)
    for kind in dict.fromkeys(one.prompt for one in trials):
        _print(f"    {kind}", [one for one in trials if one.prompt == kind])


def _recordings(folder: Path, count: int, beam: WhisperModel) -> list[Recording]:
    """Recordings of all speakers in turn; those of one speaker have a folder."""
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES]
    paths = [path for path in paths if path.parent == folder] + [
        path
        for each in zip(
            *(
                [path for path in paths if path.parent == speaker]
                for speaker in sorted({path.parent for path in paths} - {folder})
            ),
            strict=False,
        )
        for path in each
    ]
    recordings: list[Recording] = []
    for path in paths:
        pcm = read_pcm(path)
        if len(recordings) < count and len(pcm) <= MOST_S * STT_SAMPLE_RATE:
            segments, _ = beam.transcribe(pcm, beam_size=5, language="en")
            text = " ".join(segment.text.strip() for segment in segments)
            recordings.append(Recording(path.stem, pcm, text))
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
    heard: dict[str, tuple[str, float]] = {}
    for given in (prompt, "") if prompt_first else ("", prompt):
        began = time.process_time()
        text = asyncio.run(_hear(pipeline, recording.pcm, given))
        heard[given] = text, time.process_time() - began
    plain, plain_s = heard[""]
    prompted, prompted_s = heard[prompt]
    leaked = leak_of(prompt, recording.reference, plain, prompted)
    return Trial(half, kind, recording, plain, prompted, leaked, plain_s, prompted_s)


async def _hear(pipeline: TranscriptionPipeline, pcm: Pcm, prompt: str) -> str:
    terms = tuple(prompt.removeprefix(TERMS).split(", ")) if prompt.startswith(TERMS) else ()
    request = RecognitionOptions(language="en", prompt="" if terms else prompt, keyterms=terms)
    seconds = len(pcm) / STT_SAMPLE_RATE
    recording = DecodedRecording(pcm, seconds, request, pipeline.profiles[request.profile])
    return (await pipeline.transcribe(recording)).text


def leak_of(prompt: str, reference: str, plain: str, prompted: str) -> str:
    """The words of the prompt that are in the text, and neither in that without it nor said."""
    given = plain_words(prompt, "en").split()
    spoken = plain_words(reference, "en").split()
    pairs = {*pairwise(given)} - {*pairwise(spoken)}
    said = {*spoken, *plain_words(plain, "en").split()}
    words = plain_words(prompted, "en").split()
    leaked: list[str] = []
    for chunk in jiwer.process_words(
        plain_words(plain or reference, "en") or "-", " ".join(words) or "-"
    ).alignments[0]:
        others = words[chunk.hyp_start_idx : chunk.hyp_end_idx] if chunk.type != "equal" else []
        for at, word in enumerate(others):
            is_pair = (word, *others[at + 1 : at + 2]) in pairs
            if is_pair or (word in given and word not in said and len(word) > 3):
                leaked += [word, *others[at + 1 : at + 2]] if is_pair else [word]
    return " ".join(leaked)


def _print(name: str, trials: Sequence[Trial]) -> None:
    ratios = sorted(one.ratio for one in trials)
    errors = [
        jiwer.wer(
            [plain_words(one.recording.reference, "en") for one in trials],
            [plain_words(text, "en") for text in texts],
        )
        for texts in ([one.plain for one in trials], [one.prompted for one in trials])
    ]
    print(
        f"{name}: {len(trials)} pairs, time {statistics.median(ratios):.2f} at the median,"
        f" {ratios[max(0, round(0.95 * len(ratios)) - 1)]:.2f} at the 95th percentile,"
        f" {ratios[-1]:.2f} at most; {sum(bool(one.leaked) for one in trials)} leaked;"
        f" word errors without {errors[0]:.1%}, with {errors[1]:.1%}"
    )


if __name__ == "__main__":
    main()
