"""How late the words of live speech are committed, and what it costs that none is taken back.

`python -m benchmarks.stt.committed [FOLDER]` plays the held-out sentences of `passages.yaml`, by
voices of the service, and the recordings of FOLDER (a folder for each speaker, also held out) in
real time to a live session, with interims every INTERIM_MS. The lag of a word is the time from its
end to the message that commits it. Beside the word errors of the finals it prints those without
commitments, of the same transcripts.
"""

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import jiwer
import numpy as np
from faster_whisper import WhisperModel

from benchmarks.hardware import hardware
from benchmarks.stt.file import plain_words
from benchmarks.stt.lost_speech import Sentence, recorded, spoken
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from configs.settings import weights_dir
from models.registry import STT, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from pipelines.stt.committed import CommittedText
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import LiveEvent, LiveTranscript
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from tests.local_ports import LocalSTTModel

INTERIM_MS = 500
STEP_S = 0.06
PAUSE_S = 0.8  # after each sentence, so that it is an utterance


class Listener:
    """What a client of one session gets."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.lags_s: list[float] = []
        self.finals: list[str] = []
        self._commits: list[tuple[int, float]] = []  # words, and when they were committed

    async def emit(self, event: LiveEvent) -> None:
        if not isinstance(event, LiveTranscript):
            return
        now_s = time.monotonic() - self.began
        if not event.final:
            self._commits.append((len(event.committed.split()), now_s))
            return
        self.finals.append(event.text)
        for number, word in enumerate(event.words, 1):
            at = next((at for count, at in self._commits if count >= number), now_s)
            self.lags_s.append(at - word.end)
        self._commits.clear()


async def listen(pipeline: LiveTranscriptionPipeline, sentences: list[Sentence]) -> Listener:
    listener = Listener()
    options = SessionOptions(
        RecognitionOptions(languages=("en",), words=True), interim_ms=INTERIM_MS
    )
    session = LiveSession(pipeline, options, listener.emit)
    running = asyncio.create_task(session.run())
    pause = np.zeros(round(PAUSE_S * STT_SAMPLE_RATE), np.float32)
    pcm = np.concatenate([part for one in sentences for part in (one.pcm, pause)])
    step = round(STEP_S * STT_SAMPLE_RATE)
    for at in range(0, len(pcm), step):
        ahead_s = (at + step) / STT_SAMPLE_RATE - (time.monotonic() - listener.began)
        await asyncio.sleep(max(0.0, ahead_s))
        await session.accept_pcm(pcm[at : at + step])
    await session.finish()
    running.cancel()
    await session.close()
    return listener


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--sentences", type=int, default=20, help="of each source")
    arguments = parser.parse_args()
    store = WeightStore(weights_dir())
    model = LocalSTTModel(*load_model(STT, "stt/whisper_base", store))
    config = load_yaml(ListeningConfig, "listening")
    pipeline = LiveTranscriptionPipeline(model, load(VAD, config.vad, store), config)
    sources = {"voices of the service": spoken(store, "held_out")}
    if arguments.folder:
        beam = WhisperModel(str(store.folder("whisper-base")), compute_type="int8")
        sources["recordings"] = recorded(arguments.folder, "held_out", beam)
    print(hardware())
    revise, plain = CommittedText.revise, list[str]()

    def noting(self: CommittedText, heard: LiveTranscript) -> LiveTranscript:
        if heard.final:
            plain.append(heard.text)
        return revise(self, replace(heard))

    for name, sentences in sources.items():
        plain.clear()
        sentences = sentences[: arguments.sentences]
        with patch.object(CommittedText, "revise", noting):
            listener = asyncio.run(listen(pipeline, sentences))
        said = plain_words(" ".join(one.text for one in sentences), "en")
        errors = [
            jiwer.wer(said, plain_words(" ".join(texts), "en"))
            for texts in (listener.finals, plain)
        ]
        p50, p95 = np.percentile(listener.lags_s, (50, 95)) * 1000
        early = np.mean([lag < 0 for lag in listener.lags_s])
        changed = sum(one != other for one, other in zip(listener.finals, plain, strict=True))
        print(
            f"{name}: {len(listener.lags_s)} words committed p50 {p50:.0f} ms, p95 {p95:.0f} ms"
            f" after their end ({early:.1%} before it), word errors {errors[0]:.1%}"
            f" ({errors[1]:.1%} without), {changed} of {len(plain)} finals differ"
        )


if __name__ == "__main__":
    main()
