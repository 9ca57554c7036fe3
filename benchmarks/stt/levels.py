"""Word errors in recordings that are too quiet, clipped or offset, or whose channels do not agree,
against those of the same recordings as they are.

`python -m benchmarks.stt.levels [FOLDER]` takes the sentences of `benchmarks.stt.lost_speech`:
those of `passages.yaml`, spoken by voices of the service, and the recordings of FOLDER. Half of
them are for tuning (`--half tuned`). Each is changed in every way of CHANGES and transcribed as a
file and, with `--live`, as a stream. Results lie in KEPT, so that an interrupted run goes on where
it stopped; they are those of a `--label`.
"""

import argparse
import asyncio
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from benchmarks.hardware import hardware
from benchmarks.stt.file import plain_words
from benchmarks.stt.lost_speech import recorded, spoken
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig, load_profiles
from configs.settings import weights_dir
from models.audio import Pcm
from models.registry import STT, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from pipelines.audio.decode.stream import LiveAudio
from pipelines.audio.decode.worker import decode
from pipelines.audio.encode.encoder import wav_header
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import LiveEvent, LiveTranscript
from pipelines.stt.file import DecodedRecording, TranscriptionPipeline
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from tests.local_ports import LocalSTTModel

Channels = NDArray[np.floating]  # [n], or [2, n]
PIECE = 3200  # bytes of a stream


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--half", choices=("tuned", "held_out"), default="held_out")
    parser.add_argument("--kept", type=Path, default=weights_dir() / "benchmarks/levels")
    parser.add_argument("--label", default="now", help="of the results, which are kept under it")
    parser.add_argument("--limit", type=int, default=24, help="sentences of each source")
    parser.add_argument("--changes", nargs="+", choices=list(CHANGES), default=list(CHANGES))
    parser.add_argument("--live", action="store_true", help="also as streams")
    arguments = parser.parse_args()
    store = WeightStore(weights_dir())
    sentences = _sentences(store, arguments)
    listener = Listener(store, arguments.kept / f"{arguments.half}-{arguments.label}.jsonl")
    print(hardware())
    for kind in ("file", "live") if arguments.live else ("file",):
        errors: dict[str, float] = {}
        for change in arguments.changes:
            texts = [
                listener.hear(kind, change, name, CHANGES[change](pcm))
                for name, (_, pcm) in sentences.items()
            ]
            said = [plain_words(text, "en") for text, _ in sentences.values()]
            heard = [plain_words(text, "en") for text in texts]
            errors[change] = 100 * jiwer.wer(said, heard)
            more = errors[change] - errors.get("clean", errors[change])
            empty = sum(not text for text in heard)
            print(
                f"{kind} {change:22} word errors {errors[change]:6.2f} % ({more:+.2f} points), "
                f"{empty} of {len(heard)} empty",
                flush=True,
            )


def _sentences(store: WeightStore, arguments: Any) -> dict[str, tuple[str, Pcm]]:
    """The text and the speech of each sentence, by name; kept."""
    folder = arguments.kept / arguments.half
    if not (folder / "texts.json").exists():
        found = spoken(store, arguments.half)[: arguments.limit]
        if arguments.folder:
            beam = WhisperModel(
                str(store.folder("whisper-base")),
                compute_type="int8",
                cpu_threads=2,
                local_files_only=True,
            )
            found += recorded(arguments.folder, arguments.half, beam)[: arguments.limit]
        folder.mkdir(parents=True, exist_ok=True)
        for number, sentence in enumerate(found):
            np.save(folder / f"{number}.npy", sentence.pcm)
        texts = [sentence.text for sentence in found]
        (folder / "texts.json").write_text(json.dumps(texts), "utf-8")
    texts = json.loads((folder / "texts.json").read_text("utf-8"))
    sentences = {}
    for number, text in enumerate(texts):
        pcm = np.pad(np.load(folder / f"{number}.npy"), STT_SAMPLE_RATE // 2)
        sentences[str(number)] = text, pcm * (0.5 / np.abs(pcm).max())
    return sentences


class Listener:
    """Transcribes 16-bit audio as the service does, each once."""

    def __init__(self, store: WeightStore, results: Path) -> None:
        engine, info = load_model(STT, "stt/whisper_base", store)
        model, vad = LocalSTTModel(engine, info), load(VAD, "vad/silero", store)
        self._files = TranscriptionPipeline(model, None, vad, load_profiles())  # type: ignore[arg-type]
        config = load_yaml(ListeningConfig, "listening")
        self._live = LiveTranscriptionPipeline(model, vad, config)
        self._results = results
        self._known: dict[str, str] = {}
        if results.exists():
            for line in results.read_text("utf-8").splitlines():
                self._known |= json.loads(line)

    def hear(self, kind: str, change: str, name: str, audio: Channels) -> str:
        key = f"{kind} {change} {name}"
        if key not in self._known:
            channels = np.atleast_2d(audio)
            data = (np.clip(channels, -1, 1) * 32767).round().astype("<i2").T.tobytes()
            hear = self._file if kind == "file" else self._stream
            self._known[key] = asyncio.run(hear(data, len(channels)))
            with self._results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({key: self._known[key]}, ensure_ascii=False) + "\n")
        return self._known[key]

    async def _file(self, data: bytes, channels: int) -> str:
        header = bytearray(wav_header(STT_SAMPLE_RATE, len(data)))
        header[22:24], header[32:34] = channels.to_bytes(2, "little"), bytes([2 * channels, 0])
        target = BytesIO()
        job = {"format": "wav", "sample_rate": STT_SAMPLE_RATE, "max_seconds": 60}
        decode(job, BytesIO(bytes(header) + data), target)
        pcm = np.frombuffer(target.getvalue(), np.float32)
        recording = DecodedRecording(
            pcm, len(pcm) / STT_SAMPLE_RATE, RecognitionOptions("en"), load_profiles()["general"]
        )
        return (await self._files.transcribe(recording)).text

    async def _stream(self, data: bytes, channels: int) -> str:
        audio, texts = LiveAudio(), list[str]()

        async def emit(event: LiveEvent) -> None:
            if isinstance(event, LiveTranscript) and event.final:
                texts.append(event.text)

        session = LiveSession(
            self._live, SessionOptions(RecognitionOptions(languages=("en",), words=True)), emit
        )
        running = asyncio.create_task(session.run())
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            await session.accept_pcm(audio.accept_bytes(piece, "linear", 16_000, 2, channels))
        await session.accept_pcm(audio.flush())
        await session.finish()
        running.cancel()
        await session.close()
        return " ".join(filter(None, texts))


if __name__ == "__main__":
    main()
