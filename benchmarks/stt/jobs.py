"""Jobs of long recordings against the bare engine: speed, and memory that does not grow.

`python -m benchmarks.stt.jobs FOLDER --minutes 20` joins the recordings (WAV or FLAC) of a folder,
with pauses of two seconds, does a job of them in this process with the models of the CPU profile,
and decodes the same audio with the bare engine, whole segments one after the other on its workers.
"""

import argparse
import asyncio
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
from faster_whisper.audio import decode_audio

from api.app import create_app
from api.openai.batches.lines import answer_line
from benchmarks.hardware import hardware
from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from configs.settings import weights_dir
from deployments.leased_work.long_job import own_model
from deployments.replicas.stt import STTDeployment
from models.audio import AudioChunk
from models.base import ModelInfo
from models.registry import STT, VAD, load, load_model
from models.stt.base import FILE, STT_SAMPLE_RATE, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from pipelines.audio.encode.encoder import FileWriter
from pipelines.audio.segments import find_speech_segments
from pipelines.jobs.runner import JobRunner
from tests.api.local_server import local_settings
from tests.api.local_services import local_services

MODEL = "stt/whisper_base"
PAUSE_S = 2.0


def joined(folder: Path, minutes: float) -> np.ndarray:
    """Recordings of the folder with pauses, repeated up to that length; float32 at 16 kHz."""
    pieces: list[np.ndarray] = []
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".flac", ".wav"))
    samples, at = 0, 0
    while samples < minutes * 60 * STT_SAMPLE_RATE:
        pcm = decode_audio(str(files[at % len(files)]), STT_SAMPLE_RATE)
        pieces += [pcm, np.zeros(round(PAUSE_S * STT_SAMPLE_RATE), np.float32)]
        samples, at = samples + len(pcm) + len(pieces[-1]), at + 1
    return np.concatenate(pieces)[: round(minutes * 60 * STT_SAMPLE_RATE)]


class Taken:
    """Seconds of the clock and of the cores that a block takes, which tell on a busy machine."""

    def __enter__(self) -> "Taken":
        self.clock_s, self.cores_s = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.clock_s = time.perf_counter() - self.clock_s
        self.cores_s = time.process_time() - self.cores_s

    def said(self, seconds: float) -> str:
        ratio = f"{seconds / self.clock_s:.1f} times real time"
        return f"{ratio}; {seconds / self.cores_s:.1f} for each core that it uses"


async def do_job(
    pcm: np.ndarray, folder: Path, fields: dict[str, str], *, without_model: bool
) -> Taken:
    """What the job takes; without the model it is decoding, voice detection and storage."""
    settings = replace(local_settings(folder), weights_dir=weights_dir())
    services = local_services(settings)
    store = WeightStore(weights_dir())
    info = ModelInfo("svc/whisper-base", "stt", "whisper", "openai", 0, ("en",), config=MODEL)
    pipeline = services.speech.transcription.pipeline
    if not without_model:
        pipeline._transcriber = own_model(info, STTDeployment)
    pipeline._vad = load(VAD, "vad/silero", store)
    key = await services.platform.accounts.ensure_first_workspace()
    auth = {"Authorization": f"Bearer {key}"}
    writer = FileWriter("flac")
    writer.add(AudioChunk(pcm, STT_SAMPLE_RATE))
    files = {"audio": ("long.flac", writer.finish().data)}
    del pcm, writer
    transport = httpx.ASGITransport(app=create_app(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://t", timeout=600) as client:
        made = await client.post("/jobs/transcriptions", headers=auth, data=fields, files=files)
        assert made.status_code == 201, made.text
        del files
        jobs = services.speech.jobs
        claimed = await jobs.claim()
        assert claimed is not None
        async with services.speech.decoder:
            config = load_yaml(JobsConfig, "jobs")
            known = services.speech.speakers.known
            synthesis, answer = services.speech.synthesis, partial(answer_line, services.chat)
            runner = JobRunner(jobs, config, pipeline, synthesis, known, answer)
            with Taken() as took:
                running = asyncio.create_task(runner.run(claimed))
                while not running.done():
                    await asyncio.wait([running], timeout=15)
                    shown = (await client.get(f"/jobs/{made.json()['id']}", headers=auth)).json()
                    print(f"{shown['duration']:7.0f} s done, {resident_mb():5.0f} MB", flush=True)
                await running
        assert shown["status"] == "completed", shown
        text = await client.get(f"/jobs/{made.json()['id']}/transcript?format=text", headers=auth)
        print(len(text.text.split()), "words")
    services.infrastructure.database.close()
    return took


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def bare(pcm: np.ndarray) -> Taken:
    """What the engine alone takes for the same segments, with words, each of its workers one at a
    time."""
    store = WeightStore(weights_dir())
    engine, _ = load_model(STT, MODEL, store)
    vad = load(VAD, "vad/silero", store)
    frames = vad.capabilities.frame_samples
    heard = vad.probabilities(pcm)
    options: Any = {"threshold": 0.5, "min_speech_ms": 200, "min_silence_ms": 300}
    found = find_speech_segments(heard, frames, len(pcm), **options)
    requests = [
        TranscriptionRequest(
            pcm=pcm[one.start : one.end],
            language="en",
            urgency=FILE,
            options=RecognitionOptions(words=True),
        )
        for one in found
    ]
    with Taken() as took, ThreadPoolExecutor(engine.capabilities.max_concurrency) as threads:
        list(threads.map(lambda one: engine.transcribe([one]), requests))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--only", choices=("job", "bare", "rest"), help="rest: without the model")
    parser.add_argument("--field", action="append", default=[], help="NAME=VALUE of the form")
    arguments = parser.parse_args()
    print(hardware())
    pcm = joined(arguments.folder, arguments.minutes)
    seconds = len(pcm) / STT_SAMPLE_RATE
    if arguments.only in (None, "bare"):
        print(f"bare engine: {bare(pcm).said(seconds)}", flush=True)
    if arguments.only != "bare":
        fields = dict(one.split("=", 1) for one in arguments.field)
        with TemporaryDirectory() as folder:
            took = asyncio.run(
                do_job(pcm, Path(folder), fields, without_model=arguments.only == "rest")
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"job: {took.said(seconds)}; peak {peak:.0f} MB with the service")


if __name__ == "__main__":
    main()
