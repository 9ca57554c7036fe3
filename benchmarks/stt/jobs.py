"""Jobs of long recordings against the bare engine: speed, and memory that does not grow.

`python -m benchmarks.stt.jobs FOLDER --minutes 20` joins the recordings of a folder, with pauses of
two seconds, transcribes this audio by a job in this process, with the models of the CPU profile,
and decodes the same audio with the bare engine, whole segments one after the other on its workers.
"""

import asyncio
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

from api.app import create_app
from api.deepgram.recordings import answer_callback
from api.openai.batches.lines import answer_line
from benchmarks.harness.recognition import MODEL, bare_engine, speech_segments, voice_activity
from benchmarks.harness.recordings import audio_files, read_pcm
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import silence
from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from configs.settings import weights_dir
from deployments.leased_work.long_job import own_model
from deployments.replicas.stt import STTDeployment
from models.audio import AudioChunk, Pcm
from models.base import ModelInfo
from models.stt.base import FILE, STT_SAMPLE_RATE, TranscriptionRequest
from models.stt.options import RecognitionOptions
from pipelines.audio.encode.encoder import FileWriter
from pipelines.jobs.runner import JobRunner
from tests.api.local_server import local_settings
from tests.api.local_services import local_services

PAUSE_S = 2.0
WITH_WORDS = RecognitionOptions(words=True)
WHISPER = ModelInfo("svc/whisper-base", "stt", "whisper", "openai", 0, ("en",), config=MODEL)


def joined(folder: Path, minutes: float) -> Pcm:
    """Recordings of the folder with pauses, repeated up to that length."""
    files = audio_files(folder)
    pause = silence(PAUSE_S)
    length = round(minutes * 60 * STT_SAMPLE_RATE)
    pieces: list[Pcm] = []
    while sum(map(len, pieces)) < length:
        pieces += [read_pcm(files[len(pieces) // 2 % len(files)]), pause]
    return np.concatenate(pieces)[:length]


class Taken:
    """Clock seconds and core seconds that a block takes; they differ on a busy machine."""

    def __enter__(self) -> "Taken":
        self.clock_s = time.perf_counter()
        self.cores_s = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.clock_s = time.perf_counter() - self.clock_s
        self.cores_s = time.process_time() - self.cores_s

    def of(self, seconds: float) -> str:
        ratio = f"{seconds / self.clock_s:.1f} times real time"
        return f"{ratio}; {seconds / self.cores_s:.1f} for each core that it uses"


async def do_job(pcm: Pcm, folder: Path, fields: dict[str, str], *, without_model: bool) -> Taken:
    """Do a job; `without_model` leaves only decoding, voice detection and storage."""
    services = local_services(replace(local_settings(folder), weights_dir=weights_dir()))
    speech = services.speech
    pipeline = speech.transcription.pipeline
    if not without_model:
        pipeline._transcriber = own_model(WHISPER, STTDeployment)
    pipeline._vad = voice_activity()
    key = await services.platform.accounts.ensure_first_workspace()
    writer = FileWriter("flac")
    writer.add(AudioChunk(pcm, STT_SAMPLE_RATE))
    files = {"audio": ("long.flac", writer.finish().data)}
    del pcm, writer
    transport = httpx.ASGITransport(app=create_app(services))
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://t", headers=headers, timeout=600
    ) as client:
        answer = await client.post("/jobs/transcriptions", data=fields, files=files)
        path = f"/jobs/{answer.raise_for_status().json()['id']}"
        del files
        claim = await speech.jobs.claim()
        assert claim is not None
        async with speech.decoder:
            runner = JobRunner(
                speech.jobs,
                load_yaml(JobsConfig, "jobs"),
                pipeline,
                speech.synthesis,
                speech.speakers.known,
                partial(answer_line, services.chat),
                answer_callback,
            )
            with Taken() as took:
                running = asyncio.create_task(runner.run(claim))
                while not running.done():
                    await asyncio.wait([running], timeout=15)
                    job = (await client.get(path)).json()
                    print(f"{job['duration']:7.0f} s done, {resident_mb():5.0f} MB", flush=True)
                await running
        assert job["status"] == "completed", job
        text = (await client.get(f"{path}/transcript?format=text")).text
        print(len(text.split()), "words")
    services.infrastructure.database.close()
    return took


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def bare(pcm: Pcm) -> Taken:
    """What the engine alone takes for the same segments, with words; each worker takes one at a
    time."""
    engine = bare_engine()
    requests = [
        TranscriptionRequest(
            pcm=pcm[segment.start : segment.end], language="en", urgency=FILE, options=WITH_WORDS
        )
        for segment in speech_segments(pcm, min_speech_ms=200, min_silence_ms=300)
    ]
    with Taken() as took, ThreadPoolExecutor(engine.capabilities.max_concurrency) as threads:
        list(threads.map(lambda request: engine.transcribe([request]), requests))
    return took


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--minutes", type=float, default=20)
    options.add_argument("--only", choices=("job", "bare", "rest"), help="rest: without the model")
    options.add_argument("--field", action="append", default=[], help="NAME=VALUE of the form")
    arguments = begin(options)
    pcm = joined(arguments.folder, arguments.minutes)
    seconds = len(pcm) / STT_SAMPLE_RATE
    if arguments.only in (None, "bare"):
        print(f"bare engine: {bare(pcm).of(seconds)}", flush=True)
    if arguments.only != "bare":
        fields = dict(field.split("=", 1) for field in arguments.field)
        without_model = arguments.only == "rest"
        with TemporaryDirectory() as folder:
            work = do_job(pcm, Path(folder), fields, without_model=without_model)
            took = asyncio.run(work)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"job: {took.of(seconds)}; peak {peak_mb:.0f} MB with the service")


if __name__ == "__main__":
    main()
