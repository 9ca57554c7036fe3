"""Custom voices and their queue under concurrent requests, on both databases."""

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from sqlmodel import Session, col, select, update

from configs.load import load_yaml
from configs.schema.platform import PlansConfig, RetentionConfig
from configs.schema.voices import CustomVoicesConfig
from db.accounts import Workspace
from db.billing.ledger import credit_of, discrepancies, open_account
from db.billing.tables import CreditHold
from db.database import Database, utc_now
from db.voices.voices import Voice
from db.webhooks import Webhook
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import (
    InvalidRequest,
    PlanRequired,
    StorageUnavailable,
    Unauthorized,
    VoiceNotFound,
)
from pipelines.maintenance.erasure import erase_rows
from pipelines.maintenance.housekeeping import Housekeeper
from pipelines.tts.voices import ReadyCustomVoices
from pipelines.voices.checks import CheckedSamples, Sample, SampleFile
from pipelines.voices.consent import Consent
from pipelines.voices.queue import VoiceQueue
from pipelines.voices.service import LEAST_SHARE, CustomVoices
from pipelines.voices.voice_object import NewVoice
from tests.db.rows import execute, rows
from tests.db.test_chats import add_workspace
from tests.engines import TONE_ENGINE
from tests.pipelines.storage.on_disk import ENCRYPTION, files_in

CREDIT = 100_000_000
CONFIG = load_yaml(CustomVoicesConfig, "custom_voices")
PLANS = load_yaml(PlansConfig, "plans")
MADE = (TONE_ENGINE, b"the pack", 0.9, b"{}")


class VoiceBackend:
    """Custom voices, their queue, files and billing in one database, used by one workspace."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.files = files_in(folder, database)
        self.billing = Billing(database, PLANS.prices, ENCRYPTION.encrypt_text)
        self.queue = VoiceQueue(database, self.files, self.billing, CONFIG.work)
        unused = cast(Any, None)  # engines that check samples
        own = ReadyCustomVoices(database, self.files)
        self.voices = CustomVoices(
            database,
            self.files,
            self.billing,
            PLANS,
            CONFIG,
            _checker=unused,
            _clip_checker=unused,
            _stt=unused,
            directory=unused,
            ready_voices=own,
            consent=unused,
        )
        self.principal: Principal

    async def open_workspace(self) -> None:
        """Adds a workspace with credit and a webhook, and continues as it."""
        workspace_id = await add_workspace(self.database, f"{uuid4()}@example.com")
        await self.database.run(open_account, workspace_id, CREDIT)
        self.principal = Principal(1, workspace_id, "w", "free", ALL_SCOPES, None)
        url, events = "https://a.example", ["voice.created", "voice.ready", "tts.completed"]
        webhook = Webhook(id=uuid4(), workspace_id=workspace_id, url=url, events=events)
        await self.database.run(Session.add, webhook)

    async def add(self) -> Voice:
        path = self.folder / "sample"
        path.write_bytes(b"a recording")
        sample = Sample(SampleFile("a.wav", path), "audio/wav", 40.0, 0.8, 30.0, -20.0, 0.0)
        heard = SimpleNamespace(samples=(sample,) * 3)  # only the samples are stored
        voice_id = uuid4()
        voice = Voice(
            id=voice_id,
            workspace_id=self.principal.workspace_id,
            name="Ann",
            name_key="ann",
            language="en",
            gender="female",
            estimated_completion=utc_now(),
            operation=f"voice-{voice_id}",
        )
        return await self.voices._keep(self.principal, voice, cast(CheckedSamples, heard))

    async def spent(self) -> int:
        assert await self.database.read(discrepancies) == []
        return CREDIT - await self.database.read(credit_of, self.principal.workspace_id)

    def stored(self) -> int:
        return sum(path.is_file() for path in (self.folder / "files").rglob("*"))


@pytest.fixture
async def backend(database: Database, tmp_path: Path) -> VoiceBackend:
    built = VoiceBackend(database, tmp_path)
    await built.open_workspace()
    return built


async def test_concurrent_requests_do_not_exceed_the_voices_of_the_plan(
    backend: VoiceBackend,
) -> None:
    results = await asyncio.gather(*(backend.add() for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(one, Voice) for one in results) == 1, results
    assert all(isinstance(one, Voice | PlanRequired) for one in results), results
    assert backend.stored() == 3  # samples of refused requests are not stored
    assert await backend.spent() == PLANS.prices.custom_voice


async def test_the_estimated_completion_of_a_voice_includes_its_wait(backend: VoiceBackend) -> None:
    first = await backend.add()
    await backend.open_workspace()  # another workspace
    second = await backend.add()
    waits = [(one.estimated_completion - one.created_at).total_seconds() for one in (first, second)]
    round_s = CONFIG.work.seconds_per_voice
    assert waits == [round_s, 2 * round_s]
    before = utc_now()
    work = await backend.queue.claim()
    assert work is not None and work.id == first.id
    waiting = await backend.voices.get(backend.principal, str(second.id))
    assert (waiting.estimated_completion - before).total_seconds() == pytest.approx(
        2 * round_s, 0.01
    )


async def test_a_lease_is_renewed_when_there_is_something_to_store(backend: VoiceBackend) -> None:
    await backend.add()
    work = await backend.queue.claim()
    assert work is not None and work.lease is not None

    async def until(progress: float | None = None, ago_s: float = 0.0) -> tuple[float, float]:
        """The seconds that the lease has left after a renewal, and the progress, where the last
        one was some seconds ago."""
        left = utc_now() + timedelta(seconds=CONFIG.work.lease_s - ago_s)
        await execute(backend.database, update(Voice).values(lease_until=left))
        assert await backend.queue.renew(work, progress)
        row = await backend.queue.claimed(work.id, work.lease or "")
        assert row is not None and row.lease_until is not None
        return (row.lease_until - left).total_seconds(), row.progress

    half_s = CONFIG.work.lease_s / 2
    assert await until() == (0.0, 0.0)
    assert await until(progress=0.001, ago_s=half_s - 10) == (0.0, 0.0)
    renewed_s, progress = await until(progress=0.5, ago_s=half_s - 10)
    assert renewed_s > half_s - 20 and progress == 0.5
    renewed_s, progress = await until(progress=0.5, ago_s=half_s + 10)
    assert renewed_s > half_s and progress == 0.5
    await backend.queue.give_back(work)
    assert not await backend.queue.renew(work)


async def test_a_voice_deleted_while_published_costs_its_price_only_if_published(
    backend: VoiceBackend,
) -> None:
    price, spent = PLANS.prices.custom_voice, 0
    for _ in range(6):
        voice = await backend.add()
        work = await backend.queue.claim()
        assert work is not None and work.id == voice.id
        hold = await backend.billing.hold(backend.principal.workspace_id, "tts", 10, Operation())
        # Other work of the workspace that takes the same locks.
        others = (hold.capture(10), backend.queue.renew(work, 0.5))
        done, gone, *_ = await asyncio.gather(
            backend.queue.publish(work, *MADE),
            backend.voices.delete(backend.principal, str(voice.id)),
            *others,
        )
        tts = 10 * PLANS.prices.tts_character
        cost, spent = await backend.spent() - spent - tts, await backend.spent()
        assert cost in ({price} if done else {LEAST_SHARE * price, 0.5 * price})
        with pytest.raises(VoiceNotFound):
            await backend.voices.get(backend.principal, str(voice.id))
        await backend.files.delete_expired()
        assert backend.stored() == 0


async def test_a_voice_published_by_several_workers_is_charged_once(backend: VoiceBackend) -> None:
    await backend.add()
    work = await backend.queue.claim()
    assert work is not None
    done = await asyncio.gather(*(backend.queue.publish(work, *MADE) for _ in range(3)))
    assert sorted(done) == [False, False, True]
    assert await backend.spent() == PLANS.prices.custom_voice
    await backend.files.delete_expired()
    assert backend.stored() == 5  # three samples, the pack and the report


async def test_the_hold_of_a_waiting_voice_is_renewed_and_released_on_failure(
    backend: VoiceBackend,
) -> None:
    await backend.add()
    retention = RetentionConfig(chat_days=None, event_days=30, delivery_days=30)
    await execute(backend.database, update(CreditHold).values(expires_at=utc_now()))
    keeper = Housekeeper(backend.database, backend.files, retention, {"voice": backend.queue})
    done = await keeper.run_once()
    assert (done["voice_holds"], done["holds"]) == (1, 0)
    assert await backend.spent() == PLANS.prices.custom_voice
    work = await backend.queue.claim()
    assert work is not None and await backend.queue.fail(work, "voice_unlike", "It is not alike.")
    done = await keeper.run_once()
    assert (done["voice_holds"], done["holds"], await backend.spent()) == (0, 0, 0)


async def test_a_voice_added_during_the_erasure_of_its_workspace_is_removed(
    backend: VoiceBackend,
) -> None:
    for _ in range(6):
        workspace = await backend.database.get(Workspace, backend.principal.workspace_id)
        assert workspace is not None
        erasure = backend.database.run(erase_rows, workspace.id, workspace.owner_id, "operator")
        added, erased = await asyncio.gather(backend.add(), erasure, return_exceptions=True)
        assert isinstance(added, Voice | Unauthorized | StorageUnavailable), added
        assert not isinstance(erased, BaseException), erased
        await backend.files.delete_expired()
        assert backend.stored() == 0
        assert await rows(backend.database, select(CreditHold)) == []
        await backend.open_workspace()


async def test_a_voice_without_the_required_consent_is_refused(backend: VoiceBackend) -> None:
    unused = cast(Any, None)
    backend.voices.consent = Consent(unused, unused, unused, "attest")
    with pytest.raises(InvalidRequest, match="consent: "):
        await backend.voices.create(backend.principal, NewVoice("Ann"), [], Operation())


async def test_housekeeping_fails_hopeless_voices_and_deletes_old_failed_ones(
    backend: VoiceBackend,
) -> None:
    voice = await backend.add()
    retention = RetentionConfig(
        chat_days=None, event_days=30, delivery_days=30, failed_voice_days=30
    )
    long_ago = utc_now() - timedelta(days=40)
    parts = (backend.database, backend.files, retention, {"voice": backend.queue})
    await execute(backend.database, update(Voice).values(created_at=long_ago))
    done = await Housekeeper(*parts).run_once()
    assert (done["hopeless_voices"], done["files"], done["failed_voices"]) == (1, 3, 0)
    assert (await backend.voices.get(backend.principal, str(voice.id))).status == "failed"
    assert (await backend.spent(), backend.stored()) == (0, 0)
    failed = update(Voice).where(col(Voice.status) == "failed")
    await execute(backend.database, failed.values(finished_at=long_ago))
    done = await Housekeeper(*parts).run_once()
    assert (done["hopeless_voices"], done["failed_voices"]) == (0, 1)


async def test_a_voice_in_a_long_queue_is_not_hopeless(backend: VoiceBackend) -> None:
    first = await backend.add()
    await backend.open_workspace()
    last = await backend.add()

    long_ago = utc_now() - timedelta(days=2)
    claimed = await backend.queue.claim()
    assert claimed is not None and await backend.queue.publish(claimed, *MADE)
    await execute(backend.database, update(Voice).values(created_at=long_ago))
    assert await backend.queue.fail_hopeless() == 0
    of_claimed = update(Voice).where(col(Voice.id) == claimed.id)
    await execute(backend.database, of_claimed.values(finished_at=long_ago))
    assert await backend.queue.fail_hopeless() == 1
    left = {first.id, last.id} - {claimed.id}
    assert (await backend.voices.get(backend.principal, str(left.pop()))).status == "failed"
