"""Creates jobs over HTTP, and does them in this process in place of a Ray job."""

from contextlib import aclosing
from functools import partial
from typing import Any

import httpx

from api.deepgram.recordings import answer_callback
from api.openai.batches.lines import answer_line
from api.services import Services
from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from db.jobs.jobs import Job
from pipelines.jobs.fetching import Fetcher, Fetches
from pipelines.jobs.runner import JobRunner
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.sender import Sender
from tests.hostile.audio_files import wav

Headers = dict[str, str]
CONFIG = load_yaml(JobsConfig, "jobs")
RATE = 16_000


def recording(seconds: float, every_s: float = 20.0, channels: int = 1) -> bytes:
    """A WAV file of a tone that pauses for a second at the end of each `every_s`."""
    import numpy as np

    time_s = np.arange(round(seconds * RATE)) / RATE
    tone = 0.3 * np.sin(2 * np.pi * 220 * time_s) * (1 + 0.5 * np.sin(2 * np.pi * 3 * time_s))
    tone[time_s % every_s > every_s - 1] = 0.0
    pcm = np.repeat((tone * 20_000).astype("<i2"), channels)
    return wav(pcm.tobytes(), rate=RATE, channels=channels)


async def transcribe(
    client: httpx.AsyncClient, headers: Headers, audio: bytes | None, **fields: Any
) -> dict[str, Any]:
    """The answer to POST /jobs/transcriptions; the job waits in the queue, or for its parts."""
    files = {"audio": ("talk.wav", audio)} if audio is not None else {"x": (None, "")}
    answer = await client.post(
        "/jobs/transcriptions", headers=headers, data=fields, files=files, timeout=60
    )
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def claim(services: Services) -> Job:
    claimed = await services.speech.jobs.claim()
    assert claimed is not None
    return claimed


async def do(services: Services, claimed: Job) -> None:
    """Does a claimed job."""
    speech, answer = services.speech, partial(answer_line, services.chat)
    stt = speech.transcription.pipeline
    model = await speech.live_transcription.transcriber.describe()
    doing = speech.jobs, CONFIG, stt, speech.synthesis, speech.speakers.known, answer
    await JobRunner(*doing, partial(answer_callback, model)).run(claimed)


async def fetch_next(services: Services) -> None:
    """Fetches the recording of the next job that waits for it, as a worker does."""
    infrastructure = services.infrastructure
    settings = infrastructure.settings
    encryption = Encryption(settings.secrets.data_keys)
    fetches = Fetches.of(settings, infrastructure.database, encryption)
    claimed = await fetches.claim()
    assert claimed is not None
    async with aclosing(Sender(settings.webhooks)) as sender:
        await Fetcher(fetches, sender, CONFIG).fetch(claimed)


async def do_next(services: Services) -> None:
    await do(services, await claim(services))


async def job(client: httpx.AsyncClient, headers: Headers, job_id: str) -> dict[str, Any]:
    answer = await client.get(f"/jobs/{job_id}", headers=headers)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown
