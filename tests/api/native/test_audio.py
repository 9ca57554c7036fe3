"""Verification of watermarks over HTTP."""

from typing import cast

import httpx
import numpy as np

from api.app import create_app
from api.services import Services
from models.vad.base import VADEngine
from pipelines.audio.watermarking import Watermarker
from tests.api.in_process import client_of
from tests.api.money import Books
from tests.api.replaced import with_speech
from tests.pipelines.audio.test_watermarking import FakeDetector, FakeWatermark
from tests.pipelines.voices.recordings import recording, wav

Headers = dict[str, str]


async def test_watermark_verification_is_404_without_watermarking(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    files = {"audio": ("a.wav", wav(recording(1, 2)))}
    answer = await client.post("/audio/verify", headers=auth, files=files)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_watermark_verification_reports_stretches_and_costs_as_a_transcription(
    auth: Headers, services: Services, books: Books
) -> None:
    vad = cast(VADEngine, FakeDetector())
    app = create_app(with_speech(services, watermarks=Watermarker("all", FakeWatermark(), vad)))
    async with client_of(app) as client:
        loud = np.full(8 * 16_000, 0.9, np.float32)
        files = {"audio": ("a.wav", wav(loud))}
        answer = await client.post("/audio/verify", headers=auth, files=files)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "watermarked": True,
            "likelihood": 0.8,
            "duration": 8.0,
            "stretches": [
                {"start": 0.0, "end": 4.0, "likelihood": 0.1},
                {"start": 4.0, "end": 8.0, "likelihood": 0.8},
            ],
        }
        for part, error in (
            ({"other": ("a.wav", b"RIFF")}, "validation_error"),
            ({"audio": ("a.wav", b"no audio at all")}, "invalid_audio"),
        ):
            answer = await client.post("/audio/verify", headers=auth, files=part)
            assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert await books.kinds() == ["hold", "capture"]
    assert await books.charged("stt") == (8000, 800)
