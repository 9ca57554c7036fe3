"""What custom voices cost that are not made: deleted and failed ones, and bad recordings."""

from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from api.services import Services
from db.database import utc_now
from pipelines.voices import service
from pipelines.voices.service import LEAST_FAILURES, LEAST_SHARE
from tests.api.money import Books
from tests.api.native.speech.test_billing import allow_hangups
from tests.api.native.voices.test_custom import stored_files
from tests.api.native.voices.test_versions import improve
from tests.api.native.voices.voice_making import PACK, PRICE, claim, create, finish, post, queue_of
from tests.engines import TONE_ENGINE
from tests.pipelines.voices.recordings import good_files, recording, wav

Headers = dict[str, str]


async def test_bad_recordings_beyond_the_free_ones_cost_the_shortest_length(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their checks had the decoder and the models for nothing."""
    allow_hangups(monkeypatch, services, 1)
    files = (*good_files()[:2], ("broken.wav", wav(recording(4, 5))))
    for _ in range(2):
        assert (await post(client, auth, files)).status_code == 400
    assert await books.kinds() == ["hold", "capture"]
    assert (await books.charged("stt"))[0] == 120_000


@pytest.mark.parametrize(("progress", "share"), [(0.0, LEAST_SHARE), (0.7, 0.7)])
async def test_deletion_during_fitting_costs_the_progress_and_removes_files(
    progress: float,
    share: float,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    tmp_path: Path,
) -> None:
    """Voices that were deleted just before their end had two cores for nothing."""
    voice = await create(client, auth)
    queue, work = queue_of(services), await claim(services)
    samples = await queue.samples(work)
    assert samples == [content for _, content in good_files()]
    assert await queue.keep_checkpoint(work, b"half of it")
    assert await queue.renew(work, progress)
    assert len(stored_files(tmp_path)) == 4
    assert (await client.delete(f"/voices/{voice['id']}", headers=auth)).status_code == 200
    assert stored_files(tmp_path) == []
    assert not await queue.renew(work, progress=0.8)
    assert not await queue.publish(work, TONE_ENGINE, PACK, 0.9, b"{}")
    assert not await queue.fail(work, "x", "y")
    assert stored_files(tmp_path) == []
    assert await books.kinds() == ["hold", "capture"]
    assert await books.charged("voice") == (0, share * PRICE)
    assert (await client.get(f"/voices/{voice['id']}", headers=auth)).status_code == 404


async def test_a_voice_deleted_before_its_fitting_is_not_charged(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    voice = await create(client, auth)
    assert (await client.delete(f"/voices/{voice['id']}", headers=auth)).status_code == 200
    assert await books.kinds() == ["hold", "release"]


@pytest.mark.parametrize("kind", ["voice", "version"])
async def test_voices_that_fail_are_free_and_so_many_a_day(
    kind: str,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their fits had two cores for nothing."""
    queue = queue_of(services)
    voice_id = None
    if kind == "version":
        voice_id = (await create(client, auth))["id"]
        await finish(services)
    charged = await books.charged("voice")

    async def ask() -> httpx.Response:
        if voice_id is None:
            return await post(client, auth, language="en")
        return await improve(client, auth, voice_id)

    async def fail(error: str) -> None:
        answer = await ask()
        assert answer.status_code == 201, answer.text
        voice = answer.json()
        assert await queue.fail(await claim(services), error, "It failed.")
        assert (await client.delete(f"/voices/{voice['id']}", headers=auth)).status_code == 200

    for error in ("internal_error", *["voice_unlike"] * LEAST_FAILURES):
        await fail(error)
    answer = await ask()
    assert (answer.status_code, answer.json()["error"]) == (403, "plan_required")
    assert f"{LEAST_FAILURES} voices failed within a day" in answer.json()["message"]
    assert await books.charged("voice") == charged
    await client.post("/billing/subscribe", headers=auth, json={"plan_id": "starter"})
    await fail("voice_unlike")
    await client.post("/billing/subscribe", headers=auth, json={"plan_id": "free"})
    assert (await ask()).status_code == 403
    monkeypatch.setattr(service, "utc_now", lambda: utc_now() + timedelta(days=1))
    await fail("voice_unlike")
