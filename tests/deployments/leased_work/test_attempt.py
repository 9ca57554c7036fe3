"""FitAttempt: one attempt to fit a custom voice, over a real queue and without Ray."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import update

from db.errors import DatabaseUnavailable
from db.voices.voices import Voice
from deployments.leased_work import attempt as attempt_module
from deployments.leased_work.attempt import AttemptResult, FitAttempt, Forecast
from deployments.leased_work.evaluators import evaluators_for, run_shared
from pipelines.errors import InvalidAudio, VoiceNotFound
from pipelines.jobs import leases
from pipelines.voices.service import LEAST_SHARE
from tests.db.rows import execute
from tests.deployments.leased_work.slow_voices import SlowFit
from tests.deployments.leased_work.voice_backend import local_backend
from tests.patience import PATIENCE_S
from tests.pipelines.voices.test_queue import CONFIG, PLANS, VoiceBackend

PRICE = PLANS.prices.custom_voice


@pytest.fixture
async def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VoiceBackend]:
    monkeypatch.setattr(leases.LeasedQueue, "renew_s", 0.02)
    monkeypatch.setattr(attempt_module, "CHECKPOINT_S", 0.0)
    async with local_backend(tmp_path) as backend:
        yield backend


class Gate:
    """Workers that block at the trial `at` until `open` is set, or raise `error` there."""

    def __init__(self, at: int | None = None, error: Exception | None = None) -> None:
        self.at = at
        self.error = error
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def run(self, trials: Sequence[Any]) -> list[Any]:
        if self.at is not None and self.at in trials:
            self.reached.set()
            if self.error is not None:
                raise self.error
            await self.open.wait()
        return list(reversed(trials))


def attempt(
    backend: VoiceBackend, claimed: Voice, gate: Gate | None = None, fit: SlowFit | None = None
) -> FitAttempt:
    def begin(samples: list[bytes], state: bytes | None) -> Any:
        assert samples == [b"a recording"] * 3
        made = SlowFit(generations=5) if fit is None else fit
        made.done = made.done if state is None else json.loads(state)
        return made

    compute = ThreadPoolExecutor(1)
    return FitAttempt(
        backend.queue, claimed, CONFIG.work, begin, lambda _: (gate or Gate()).run, "tone", compute
    )


async def claim(backend: VoiceBackend) -> Voice:
    claimed = await backend.queue.claim()
    assert claimed is not None
    return claimed


async def test_a_finished_voice_is_ready_and_charged_once(backend: VoiceBackend) -> None:
    voice = await backend.add()
    claimed = await claim(backend)
    assert await attempt(backend, claimed).run() == "ready"
    found = await backend.voices.get(backend.principal, str(voice.id))
    assert (found.status, found.progress, found.similarity) == ("ready", 1.0, 0.9)
    assert await backend.spent() == PRICE
    assert await attempt(backend, claimed).run() == "gone"
    assert await backend.spent() == PRICE


async def test_the_preview_of_a_fit_is_stored_with_its_checkpoint(backend: VoiceBackend) -> None:
    voice = await backend.add()
    gate, fit = Gate(at=9), SlowFit(generations=5, preview=(b"OggS", 0.5))
    running = asyncio.create_task(attempt(backend, await claim(backend), gate, fit).run())
    await gate.reached.wait()
    found = await backend.voices.get(backend.principal, str(voice.id))
    assert (found.status, found.similarity) == ("processing", 0.5)
    assert found.preview_file is not None and found.preview_at is not None
    stored = await backend.files.read(found.workspace_id, found.preview_file)
    assert stored == b"OggS"
    gate.open.set()
    assert await running == "ready"
    found = await backend.voices.get(backend.principal, str(voice.id))
    assert (found.preview_file, found.similarity) == (None, 0.9)


async def test_a_voice_of_low_similarity_fails_and_is_not_charged(backend: VoiceBackend) -> None:
    voice = await backend.add()
    fit = SlowFit(generations=2, error="voice_unlike")
    assert await attempt(backend, await claim(backend), fit=fit).run() == "failed"
    found = await backend.voices.get(backend.principal, str(voice.id))
    assert (found.status, found.error, await backend.spent()) == ("failed", "voice_unlike", 0)


async def test_unusable_recordings_fail_the_voice_at_the_last_attempt(
    backend: VoiceBackend,
) -> None:
    voice = await backend.add()

    def begin(samples: list[bytes], state: bytes | None) -> Any:
        raise InvalidAudio("files[0] holds no speech")

    claimed = await claim(backend)
    made = attempt(backend, claimed)
    made.begin = begin
    with pytest.raises(InvalidAudio):  # an early attempt is retried: the cause may be the machine
        await made.run()
    claimed.attempt = 3
    made = attempt(backend, claimed)
    made.begin = begin
    assert await made.run() == "failed"
    found = await backend.voices.get(backend.principal, str(voice.id))
    assert (found.error, found.reason) == ("invalid_audio", "files[0] holds no speech")


async def test_deleting_a_voice_ends_its_attempt_and_costs_its_progress(
    backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "GRACE_S", 0.1)
    voice = await backend.add()
    gate = Gate(at=9)
    running = asyncio.create_task(attempt(backend, await claim(backend), gate).run())
    await gate.reached.wait()
    await backend.voices.delete(backend.principal, str(voice.id))
    async with asyncio.timeout(PATIENCE_S):
        assert await running == "gone"
    with pytest.raises(VoiceNotFound):
        await backend.voices.get(backend.principal, str(voice.id))
    assert LEAST_SHARE * PRICE <= await backend.spent() < PRICE


async def test_an_attempt_ends_when_its_lease_is_taken_over(
    backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "GRACE_S", 0.1)
    await backend.add()
    gate = Gate(at=9)
    running = asyncio.create_task(attempt(backend, await claim(backend), gate).run())
    await gate.reached.wait()
    await execute(backend.database, update(Voice).values(lease="another"))
    async with asyncio.timeout(PATIENCE_S):
        assert await running == "gone"


async def test_a_stopped_attempt_is_resumed_at_its_checkpoint_and_not_counted(
    backend: VoiceBackend,
) -> None:
    voice = await backend.add()
    gate = Gate(at=9)
    stopped = attempt(backend, await claim(backend), gate)
    running = asyncio.create_task(stopped.run())
    await gate.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await stopped.give_back()
    again = await claim(backend)
    assert again.attempt == 1
    found = await backend.voices.get(backend.principal, str(voice.id))
    assert found.status == "processing" and found.progress == pytest.approx(0.4)
    fit = SlowFit(generations=5)
    assert await attempt(backend, again, fit=fit).run() == "ready"
    assert (
        fit.observed == sorted(fit.observed, key=lambda n: (n // 4, -n)) and min(fit.observed) == 8
    )


async def test_voices_of_two_workspaces_take_turns_at_their_checkpoints(
    backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = CONFIG.work.model_copy(update={"turn_s": 0.0})
    monkeypatch.setattr(backend.queue, "_work", work)
    first = await backend.add()
    await backend.open_workspace()
    second = await backend.add()
    claims, results = [], []
    while await backend.queue.count_free():
        claimed = await claim(backend)
        claims.append(claimed.id)
        results.append(await attempt(backend, claimed).run())
        assert claimed.attempt == 1
    assert claims[:6] == [first.id, second.id] * 3 and set(claims[6:]) == {first.id, second.id}
    assert results.count("ready") == 2 and set(results) == {"ready", "gave_way"}


async def test_the_attempt_after_a_failed_trial_has_the_checkpoint(backend: VoiceBackend) -> None:
    await backend.add()
    claimed = await claim(backend)
    with pytest.raises(ValueError, match="broken"):
        await attempt(backend, claimed, Gate(at=5, error=ValueError("broken"))).run()
    await backend.queue.give_back(claimed, died=True)
    again = await claim(backend)
    assert again.attempt == 2 and again.checkpoint_file is not None


async def test_an_attempt_with_a_hanging_worker_times_out(
    backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_module, "STALL_S", 0.1)
    await backend.add()
    with pytest.raises(TimeoutError):
        await attempt(backend, await claim(backend), Gate(at=5)).run()


async def test_an_attempt_survives_a_temporarily_unavailable_database(
    backend: VoiceBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.add()
    made = attempt(backend, await claim(backend))
    transact, calls = backend.database._in_thread, iter(range(1000))

    async def sometimes(*work: Any) -> Any:
        if next(calls) % 30 in range(3, 9):
            raise DatabaseUnavailable("away")
        return await transact(*work)

    monkeypatch.setattr(backend.database, "_in_thread", sometimes)
    end: AttemptResult = await made.run()
    monkeypatch.undo()
    assert end == "ready" and await backend.spent() == PRICE


def test_the_forecast_converges_to_the_observed_speed() -> None:
    now = 0.0
    forecast = Forecast(720, 0.5, lambda: now)
    assert forecast.remaining_s(0.5) == pytest.approx(360)
    left = []
    for step in range(1, 6):  # at half of the expected speed
        now = step * 144.0
        left.append(forecast.remaining_s(0.5 + step * 0.1))
    truth = [576, 432, 288, 144, 0]
    errors = [abs(a - b) for a, b in zip(left, truth, strict=True)]
    assert errors == sorted(errors, reverse=True) and errors[2] < 40


def test_the_forecast_is_stable_between_steps_and_grows_when_progress_stalls() -> None:
    now = 0.0
    forecast = Forecast(700, 0.0, lambda: now)
    ends = []
    for now in (0.0, 30.0, 60.0):
        ends.append(now + forecast.remaining_s(0.0))
    assert ends == pytest.approx([700, 700, 700])
    now = 370.0
    assert now + forecast.remaining_s(0.0) == pytest.approx(1000)
    assert forecast.remaining_s(1.0) == 0


@pytest.mark.parametrize(
    ("cpus", "at_once", "most", "expected"),
    [(2.0, 1, 8, 2), (16.0, 1, 8, 8), (4.0, 2, 8, 2), (1.0, 3, 8, 1), (0.0, 1, 8, 1)],
)
def test_there_is_one_worker_per_core(cpus: float, at_once: int, most: int, expected: int) -> None:
    assert evaluators_for(cpus, at_once, most) == expected


@pytest.mark.parametrize(("workers", "rounds"), [(1, 12), (2, 6), (4, 3), (8, 2)])
async def test_trials_are_shared_evenly_by_the_workers(workers: int, rounds: int) -> None:
    done = [0] * workers

    def worker(number: int) -> Any:
        async def run(trial: Any) -> Any:
            for _ in range(5):
                await asyncio.sleep(0)
            done[number] += 1
            return trial

        return run

    outcomes = await run_shared(list(range(12)), [worker(number) for number in range(workers)])
    assert sorted(outcomes) == list(range(12))
    assert max(done) == rounds


async def test_the_first_failed_trial_cancels_the_others() -> None:
    begun = []

    async def run(trial: Any) -> Any:
        begun.append(trial)
        if trial == 1:
            raise ValueError("broken")
        await asyncio.sleep(10)

    with pytest.raises(ValueError, match="broken"):
        await run_shared(list(range(9)), [run] * 3)
    assert begun == [0, 1, 2]
