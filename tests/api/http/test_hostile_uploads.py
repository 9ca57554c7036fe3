"""The hostile audio corpus over HTTP: transcribed or refused, without effect on other requests."""

import httpx
import pytest

from configs.settings import Settings
from tests.hostile.audio_files import tone, wav
from tests.hostile.corpus import FULL, corpus
from tests.plans import raise_plans

REFUSALS = ("invalid_audio", "audio_too_long", "file_too_large")


@pytest.mark.timeout(7200 if FULL else 300)
@pytest.mark.slow
async def test_hostile_audio_uploads_cause_no_server_error(
    client: httpx.AsyncClient, auth: dict[str, str], settings: Settings
) -> None:
    raise_plans(settings.database_url)
    good = wav((tone(1) * 32767).astype("<i2").tobytes())
    wrong = []
    for number, hostile in enumerate(corpus()):
        answer = await client.post("/stt", headers=auth, files={"audio": ("x", hostile.data)})
        body = answer.json()
        if answer.status_code != 200 and not (
            answer.status_code == 400 and body["error"] in REFUSALS and body["message"]
        ):
            wrong.append((hostile.name, answer.status_code, body))
        if number % 25 == 0:
            after = await client.post("/stt", headers=auth, files={"audio": ("x", good)})
            if after.status_code != 200:
                wrong.append((f"the file after {hostile.name}", after.status_code, after.json()))
    assert wrong == []
