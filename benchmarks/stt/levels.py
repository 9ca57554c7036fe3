"""Word errors in recordings that are too quiet, clipped or offset, or whose channels do not agree,
against those of the same recordings as they are.

`python -m benchmarks.stt.levels [FOLDER]` takes the sentences of `benchmarks.stt.lost_speech`:
those of `passages.yaml`, spoken by voices of the service, and the recordings of FOLDER. Half of
them are for tuning (`--half tuned`). Each is changed in every way of CHANGES and transcribed as a
file. Results are kept in KEPT under a `--label`, so that an interrupted run goes on where it
stopped.
"""

import argparse
import asyncio
import json
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.recognition import file_pipeline, transcribe
from benchmarks.harness.recordings import recorded_sentences, word_error_rate
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import HALVES, KEPT, KeptResults, plain_words
from benchmarks.stt.lost_speech import passages
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.decode.worker import decode
from pipelines.audio.encode.encoder import wav_header

Channels = NDArray[np.floating]  # [n], or [2, n]


def _quieter(decibels: float) -> Callable[[Pcm], Channels]:
    return lambda pcm: pcm * 10 ** (decibels / 20)


# At a common level first: the loudest sample is at 0.5.
CHANGES: dict[str, Callable[[Pcm], Channels]] = {
    "clean": lambda pcm: pcm,
    **{f"{decibels} dB": _quieter(decibels) for decibels in (-20, -30, -40, -45, -50, -55, -60)},
    "left": lambda pcm: np.stack([pcm, 0 * pcm]),
    "right": lambda pcm: np.stack([0 * pcm, pcm]),
    "opposite": lambda pcm: np.stack([pcm, -pcm]),
    "opposite, uneven": lambda pcm: np.stack([0.5 * pcm, -pcm]),
    "opposite, -40 dB": lambda pcm: 0.01 * np.stack([pcm, -pcm]),
    "clipped, 6 dB": lambda pcm: 4 * pcm,
    "clipped, 12 dB": lambda pcm: 8 * pcm,
    "clipped, 20 dB": lambda pcm: 20 * pcm,
    "clipped, then -30 dB": lambda pcm: 0.03 * np.clip(8 * pcm, -1, 1),
    "offset 0.05": lambda pcm: pcm + 0.05,
    "offset 0.3": lambda pcm: pcm + 0.3,
    "offset 0.1, -30 dB": lambda pcm: 0.03 * pcm + 0.1,
    "offset 0.2, opposite": lambda pcm: np.stack([pcm + 0.2, -pcm + 0.2]),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--half", choices=HALVES, default="held_out")
    options.add_argument("--kept", type=Path, default=KEPT / "levels")
    options.add_argument("--label", default="now", help="of the results, which are kept under it")
    options.add_argument("--limit", type=int, default=24, help="sentences of each source")
    arguments = begin(options)
    sentences = _sentences(arguments)
    texts = [text for text, _ in sentences]
    results = KeptResults(arguments.kept / f"{arguments.half}-{arguments.label}.jsonl")
    clean: float | None = None
    for change, changed in CHANGES.items():
        transcripts = []
        for number, (_, pcm) in enumerate(sentences):
            work = partial(_transcribe, np.atleast_2d(changed(pcm)))
            transcripts.append(results.get(f"{change} {number}", work))
        errors = 100 * word_error_rate(texts, transcripts)
        clean = errors if clean is None else clean
        empty = sum(not plain_words(transcript) for transcript in transcripts)
        print(
            f"{change:22} word errors {errors:6.2f} % ({errors - clean:+.2f} points), "
            f"{empty} of {len(transcripts)} empty",
            flush=True,
        )


def _sentences(arguments: argparse.Namespace) -> list[tuple[str, Pcm]]:
    """The text and the speech of each sentence; kept."""
    folder: Path = arguments.kept / arguments.half
    file = folder / "texts.json"
    if not file.exists():
        sentences = passages(arguments.half)[: arguments.limit]
        if arguments.folder:
            recorded = recorded_sentences(arguments.folder, arguments.half)
            sentences += recorded[: arguments.limit]
        folder.mkdir(parents=True, exist_ok=True)
        for number, sentence in enumerate(sentences):
            np.save(folder / f"{number}.npy", sentence.pcm)
        file.write_text(json.dumps([sentence.text for sentence in sentences]), "utf-8")
    pairs = []
    for number, text in enumerate(json.loads(file.read_text("utf-8"))):
        pcm = np.pad(np.load(folder / f"{number}.npy"), STT_SAMPLE_RATE // 2)
        pairs.append((text, pcm * (0.5 / np.abs(pcm).max())))
    return pairs


def _pcm16(channels: Channels) -> bytes:
    """Interleaved 16-bit samples."""
    return (np.clip(channels, -1, 1) * 32767).round().astype("<i2").T.tobytes()


def _transcribe(channels: Channels) -> str:
    data = _pcm16(channels)
    header = bytearray(wav_header(STT_SAMPLE_RATE, len(data)))
    header[22:24] = len(channels).to_bytes(2, "little")
    header[32:34] = (2 * len(channels)).to_bytes(2, "little")  # bytes of a frame
    target = BytesIO()
    job = {"format": "wav", "sample_rate": STT_SAMPLE_RATE, "max_seconds": 60}
    decode(job, BytesIO(bytes(header) + data), target)
    pcm = np.frombuffer(target.getvalue(), np.float32)
    return asyncio.run(transcribe(file_pipeline(), pcm)).text


if __name__ == "__main__":
    main()
