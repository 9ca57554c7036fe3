"""Creates custom voices over HTTP, and finishes them in place of a worker."""

from typing import Any

import httpx
import numpy as np

from api.services import Services
from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from db.voices.voices import Voice
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, write_pack
from pipelines.voices.queue import VoiceQueue
from tests.api.native.voices.sample_reports import full_report
from tests.engines import TONE_ENGINE
from tests.pipelines.voices.recordings import good_files

Headers = dict[str, str]
PACK = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.25, np.float32)))
PRICE = 1_000_000


def queue_of(services: Services) -> VoiceQueue:
    """The queue of voices as a worker uses it."""
    work = load_yaml(CustomVoicesConfig, "custom_voices").work
    return VoiceQueue(
        services.infrastructure.database,
        services.infrastructure.files,
        services.platform.billing,
        work,
    )


async def post(
    client: httpx.AsyncClient,
    headers: Headers,
    files: tuple[tuple[str, bytes], ...] | None = None,
    **fields: Any,
) -> httpx.Response:
    """POST /voices with good recordings, unless others are given."""
    parts = [("files", (name, content)) for name, content in files or good_files()]
    return await client.post(
        "/voices", headers=headers, data={"name": "Ann", **fields}, files=parts, timeout=60
    )


async def create(client: httpx.AsyncClient, headers: Headers, **fields: Any) -> dict[str, Any]:
    """The answer to POST /voices; the voice waits in the queue."""
    answer = await post(client, headers, **{"language": "en", **fields})
    assert answer.status_code == 201, answer.text
    voice: dict[str, Any] = answer.json()
    return voice


async def enrol(
    client: httpx.AsyncClient,
    headers: Headers,
    files: tuple[tuple[str, bytes], ...] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The answer to POST /speakers, of one good recording unless others are given."""
    parts = [("files", (name, content)) for name, content in files or good_files()[:1]]
    data = {"name": "Ann", "consent": "She agreed.", **fields}
    answer = await client.post("/speakers", headers=headers, data=data, files=parts, timeout=60)
    body: dict[str, Any] = answer.json() | {"status_code": answer.status_code}
    return body


async def claim(services: Services) -> Voice:
    """Claims the next voice of the queue."""
    found = await queue_of(services).claim()
    assert found is not None
    return found


async def finish(services: Services, pack: bytes = PACK) -> Voice:
    """Claims the next voice and publishes it as ready."""
    voice = await claim(services)
    assert await queue_of(services).publish(
        voice, TONE_ENGINE, pack, 0.91234, full_report().model_dump_json().encode()
    )
    return voice
