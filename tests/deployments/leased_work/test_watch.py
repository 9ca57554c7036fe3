"""Watch: waiting voices are submitted as jobs, over a real queue and fake jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlmodel import Session, update

from configs.environment import sqlite_url
from configs.schema.voices import VoiceWorkConfig
from configs.settings import load_settings
from db.database import utc_now
from db.jobs.jobs import Job
from db.voices.voices import Voice
from deployments.leased_work import watch as watch_module
from deployments.leased_work.job_client import (
    Ending,
    JobState,
    JobsUnavailable,
    LeasedJob,
    LeasedJobClient,
    places,
    unsent,
)
from deployments.leased_work.watch import STALLED_S, StallMonitor, Watch
from pipelines.voices.queue import VoiceQueue
from pipelines.voices.service import LEAST_SHARE
from telemetry.metrics import REGISTRY
from tests.db.rows import execute
from tests.deployments.leased_work.voice_backend import local_backend
from tests.patience import until
from tests.pipelines.voices.test_queue import CONFIG, MADE, PLANS, VoiceBackend

LASTING = ("starting", "running")


@pytest.fixture
async def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VoiceBackend]:
    for name in ("LOOK_S", "FOLLOW_S", "EXPECT_S", "PAUSE_S"):
        monkeypatch.setattr(watch_module, name, 0.02)
    monkeypatch.setattr(watch_module, "GRACE_S", 0.2)
    async with local_backend(tmp_path) as backend:
        yield backend


class FakeJobs(LeasedJobClient):
    """Fake jobs, whose states the test sets."""

    def __init__(self) -> None:
        self.states: dict[LeasedJob, JobState | Ending] = {}
        self.claims: list[Voice] = []
        self.stopped: list[LeasedJob] = []
        self.broken = False

    async def submit(self, claimed: Voice | Job) -> LeasedJob:
        assert isinstance(claimed, Voice)
        if self.broken:
            raise JobsUnavailable("the dashboard is away")
        job = LeasedJob(f"clone-{claimed.id}-{claimed.attempt}", claimed.id, claimed.lease or "")
        self.claims.append(claimed)
        self.states[job] = "running"
        return job

    async def known(self) -> list[tuple[LeasedJob, bool]]:
        if self.broken:
            raise JobsUnavailable("the dashboard is away")
        return [(job, state not in LASTING) for job, state in self.states.items()]

    async def state(self, job: LeasedJob) -> JobState | Ending:
        if job not in self.states:
            raise JobsUnavailable("no such job")
        return self.states[job]

    async def stop(self, job: LeasedJob) -> None:
        self.stopped.append(job)
        self.states[job] = "stopped"

    def end(self, number: int, ending: Ending = "died") -> None:
        self.states[list(self.states)[number]] = ending

    async def until(self, submitted: int) -> Voice:
        """Waits for so many submitted jobs; returns the claimed voice of the last one."""
        await until(lambda: len(self.claims) >= submitted)
        return self.claims[submitted - 1]


@asynccontextmanager
async def watching(
    queue: VoiceQueue, jobs: FakeJobs, work: VoiceWorkConfig = CONFIG.work
) -> AsyncIterator[Watch]:
    watch = Watch(queue, jobs, work)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_a_moment() -> None:
    """Long enough for a watch to do what the test then asserts it did not do."""
    await asyncio.sleep(0.2)


async def test_voices_are_made_in_order_with_their_completion_time_updated(
    backend: VoiceBackend,
) -> None:
    work = CONFIG.work
    jobs, voices = FakeJobs(), []
    for _ in range(10):
        voices.append(await backend.add())
        await backend.open_workspace()  # each is of another workspace
    round_s = work.seconds_per_voice
    async with watching(backend.queue, jobs):
        for number, voice in enumerate(voices):
            claimed = await jobs.until(number + 1)
            assert claimed.id == voice.id
            slow_s = 2 * round_s  # what the current voice still needs
            assert await backend.queue.renew(claimed, 0.1, slow_s)

            async def estimated(first: int = number + 1, base_s: float = slow_s) -> bool:
                """Whether each waiting voice is due after the current one and those before it."""
                waits = [
                    (one.estimated_completion - utc_now()).total_seconds()
                    for one in await rows(backend, [voice.id for voice in voices[first:]])
                ]
                due = [base_s + place * round_s for place in range(1, len(waits) + 1)]
                return all(abs(a - b) < 10 for a, b in zip(waits, due, strict=True))

            await until(estimated)
            await wait_a_moment() if number == 0 else None
            assert len(jobs.claims) == number + 1  # one at a time
            assert await backend.queue.publish(claimed, *MADE)
            jobs.end(number)


async def rows(backend: VoiceBackend, ids: list[object]) -> list[Voice]:
    def read(session: Session) -> list[Voice]:
        return [voice for one in ids if (voice := session.get(Voice, one)) is not None]

    return await backend.database.read(read)


async def test_as_many_voices_are_made_concurrently_as_configured(backend: VoiceBackend) -> None:
    for _ in range(3):
        await backend.add()
        await backend.open_workspace()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs, CONFIG.work.model_copy(update={"at_once": 2})):
        await jobs.until(2)
        await wait_a_moment()
        assert len(jobs.claims) == 2


async def test_a_dead_job_is_retried_up_to_the_maximum_number_of_attempts(
    backend: VoiceBackend,
) -> None:
    voice = await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        for attempt in range(1, CONFIG.work.most_attempts + 1):
            claimed = await jobs.until(attempt)
            assert (claimed.id, claimed.attempt) == (voice.id, attempt)
            jobs.end(attempt - 1)
            if watch_module.QUICK_ATTEMPTS < attempt < CONFIG.work.most_attempts:
                await until(lambda held=claimed: was_released(backend, held, "died"))  # type: ignore[misc]
                await wait_a_moment()  # the next attempt follows after a pause
                assert len(jobs.claims) == attempt
                await backend.database.run(let_leases_run_out)
        await until(lambda: has_failed(backend, voice))  # at once, without housekeeping
        await wait_a_moment()
        assert len(jobs.claims) == CONFIG.work.most_attempts
    assert await backend.spent() == 0


async def has_failed(backend: VoiceBackend, voice: Voice) -> bool:
    return (await rows(backend, [voice.id]))[0].status == "failed"


@pytest.mark.parametrize("ending", ["stopped", "waits", "lost", "lapsed", "hung"])
async def test_an_attempt_that_did_not_die_by_itself_is_not_counted(
    ending: Any, backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        for number in range(1, 2 * CONFIG.work.most_attempts):
            claimed = await jobs.until(number)
            assert (claimed.id, claimed.attempt) == (voice.id, 1)
            if ending == "hung":
                monkeypatch.setattr(watch_module, "HANGS_S", -1.0)
                await until(lambda many=number: len(jobs.stopped) == many)  # type: ignore[misc]
                monkeypatch.setattr(watch_module, "HANGS_S", 3600.0)
            elif ending == "lapsed":  # and Ray has forgotten the job
                jobs.states.clear()
            else:
                jobs.end(number - 1, ending)
            await until(lambda held=claimed: was_released(backend, held, ending))  # type: ignore[misc]
            await backend.database.run(let_leases_run_out)
    long_ago = utc_now() - timedelta(days=30)
    await execute(backend.database, update(Voice).values(tried_since=long_ago))
    await backend.database.run(let_leases_run_out)  # but not for ever
    assert await backend.queue.fail_hopeless() == 1 and await has_failed(backend, voice)


@pytest.mark.parametrize(("ending", "share"), [("lost", 1.0), ("hung", 1.0), ("waits", 0.25)])
async def test_an_attempt_without_count_is_followed_by_a_growing_pause(
    ending: Any, share: float, backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        claimed = await jobs.until(1)
        four_hours_ago = utc_now() - timedelta(hours=4)
        await execute(backend.database, update(Voice).values(tried_since=four_hours_ago))
        if ending == "hung":
            monkeypatch.setattr(watch_module, "HANGS_S", -1.0)
        else:
            jobs.end(0, ending)
        await until(lambda: was_released(backend, claimed, ending))
    (row,) = await rows(backend, [voice.id])
    assert row.lease_until is not None and row.attempt == 0
    pause_h = (row.lease_until - utc_now()).total_seconds() / 3600
    assert pause_h == pytest.approx(4 * share, rel=0.1)


async def was_released(backend: VoiceBackend, claimed: Voice, ending: str) -> bool:
    return ending == "lapsed" or (await rows(backend, [claimed.id]))[0].lease != claimed.lease


async def test_the_lease_is_renewed_while_ray_has_the_job(backend: VoiceBackend) -> None:
    """Its process, which has the lowest priority, may get no core for minutes."""
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        claimed = await jobs.until(1)
        for _ in range(3):
            await backend.database.run(let_leases_run_out)
            await until(lambda: is_renewed(backend, claimed))
        assert len(jobs.claims) == 1 and jobs.stopped == []


async def is_renewed(backend: VoiceBackend, claimed: Voice) -> bool:
    row = (await rows(backend, [claimed.id]))[0]
    return row.lease == claimed.lease and (row.lease_until or utc_now()) > utc_now()


def let_leases_run_out(session: Session) -> None:
    session.exec(update(Voice).values(lease_until=utc_now() - timedelta(seconds=1)))


async def test_a_new_watch_takes_over_the_running_job_of_the_old_one(backend: VoiceBackend) -> None:
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        first = await jobs.until(1)
    async with watching(backend.queue, jobs):
        await wait_a_moment()
        assert jobs.claims == [first] and jobs.stopped == []
        jobs.end(0)  # noticed by the second watch
        again = await jobs.until(2)
        assert (again.id, again.attempt) == (first.id, 2)


async def test_a_job_that_died_while_no_watch_ran_is_retried_at_once(backend: VoiceBackend) -> None:
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        await jobs.until(1)
    jobs.end(0)
    async with watching(backend.queue, jobs):
        assert (await jobs.until(2)).attempt == 2  # without waiting for the lease to end


async def test_two_watches_submit_one_job_for_one_voice(backend: VoiceBackend) -> None:
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs), watching(backend.queue, jobs):
        await jobs.until(1)
        await wait_a_moment()
    assert len(jobs.claims) == 1


async def test_a_job_whose_voice_was_deleted_is_stopped(backend: VoiceBackend) -> None:
    voice = await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        await jobs.until(1)
        await backend.voices.delete(backend.principal, str(voice.id))
        await until(lambda: len(jobs.stopped) == 1)
    assert await backend.spent() == LEAST_SHARE * PLANS.prices.custom_voice


async def test_a_job_unknown_to_ray_is_retried_after_its_lease_expired(
    backend: VoiceBackend,
) -> None:
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        await jobs.until(1)
        jobs.states.clear()
        await wait_a_moment()
        assert len(jobs.claims) == 1  # the job may still run
        await backend.database.run(let_leases_run_out)
        assert (await jobs.until(2)).attempt == 1


async def test_no_attempt_is_counted_while_ray_accepts_no_jobs(backend: VoiceBackend) -> None:
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs):
        begun = await jobs.until(1)
        jobs.broken = True
        await backend.open_workspace()
        await backend.add()
        jobs.end(0)
        await wait_a_moment()
        jobs.broken = False
        # Either may be the next: the other one waits if it was refused meanwhile.
        following = await jobs.until(2)
        assert await backend.queue.publish(following, *MADE)
        jobs.end(1, "finished")
        last = await jobs.until(3)
        for claimed in (following, last):
            assert claimed.attempt == (2 if claimed.id == begun.id else 1)
    jobs = FakeJobs()
    jobs.broken = True
    async with watching(backend.queue, jobs):  # also at the start
        await until(lambda: stalled_metric_s() > 0.1)
        jobs.broken = False
        await until(lambda: stalled_metric_s() < 0.1)


def stalled_metric_s() -> float:
    """The metric of how long a job has made no progress."""
    return REGISTRY.get_sample_value("antiphon_voice_still_seconds") or 0.0


async def test_stop_jobs_stops_running_jobs_and_submits_no_more(backend: VoiceBackend) -> None:
    await backend.add()
    jobs = FakeJobs()
    async with watching(backend.queue, jobs) as watch:
        claimed = await jobs.until(1)
        await backend.queue.give_back(claimed)  # as a stopped job does
        await watch.stop_jobs()
        await wait_a_moment()
        assert len(jobs.claims) == 1 and [job.lease for job in jobs.stopped] == [claimed.lease]
    assert await backend.queue.count_free() == 1


def test_only_code_folders_are_sent_to_a_job(tmp_path: Path) -> None:
    for name in ("configs", "deployments", "data", "mine", ".venv", "*", "a[1]"):
        (tmp_path / name).mkdir()
    names = {"/data", "/mine", "/.venv", "/[*]", "/a[[]1]"}  # not those that a pattern means
    assert set(unsent(tmp_path)) == names


def test_relative_paths_of_settings_are_absolute_in_the_environment_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").touch()
    (tmp_path / "some.db").touch()
    for name, value in {
        "ANTIPHON_DATA": "data",
        "ANTIPHON_WEIGHTS": "weights",
        "DATABASE_URL": "sqlite:///some.db",
        "STORAGE_URL": "file://store",
        "WEBHOOK_CA_FILE": "ca.pem",
    }.items():
        monkeypatch.setenv(name, value)
    assert places(load_settings()) == {
        "ANTIPHON_DATA": f"{tmp_path}/data",
        "ANTIPHON_WEIGHTS": f"{tmp_path}/weights",
        "DATABASE_URL": sqlite_url(Path(tmp_path, "some.db")),
        "STORAGE_URL": f"file://{tmp_path}/store",
        "WEBHOOK_CA_FILE": f"{tmp_path}/ca.pem",
    }
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:secret@host/base")
    monkeypatch.setenv("STORAGE_URL", "memory://folder")
    assert {"DATABASE_URL", "STORAGE_URL"}.isdisjoint(places(load_settings()))


def test_the_job_stalled_longest_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    monitor = StallMonitor(lambda: now)
    assert monitor.stalled_s() == 0
    slow, quick = (LeasedJob(name, uuid4(), "lease") for name in ("slow", "quick"))
    for now in range(0, 310, 10):
        monitor.observe(slow, 0.0, "starting")
        monitor.observe(quick, now / 1000, "running")
    assert monitor.stalled_s() == 300 > STALLED_S
    logged = [(record.message, vars(record)["job"]) for record in caplog.records]
    assert logged == [("job_stalled", "slow")]
    monitor.observe(slow, 0.1, "running")
    assert monitor.stalled_s() == 0
    now += 50
    monitor.observe(quick, 0.5, "running")
    assert monitor.stalled_s() == 50
    monitor.forget(slow)
    assert monitor.stalled_s() == 0
