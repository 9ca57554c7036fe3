"""Task sets, the TTL cache, deadlines, retries and the renewal of leases."""

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pipelines.tasks import (
    TaskSet,
    TtlCache,
    keep_lease,
    retry,
    wait_within,
    while_leased,
    within_deadline,
)
from tests.patience import PATIENCE_S


async def answer(after_s: float) -> str:
    await asyncio.sleep(after_s)
    return "answer"


class Loader:
    """Counts loads; each waits until `gate` is set."""

    def __init__(self) -> None:
        self.loads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.loads += 1
        loaded = self.loads
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return loaded


async def test_a_task_set_holds_a_task_until_it_ends() -> None:
    tasks = TaskSet()
    task = tasks.start(answer(0.01), name="ask")
    assert len(tasks) == 1 and task.get_name() == "ask"
    await tasks.join()
    assert len(tasks) == 0 and task.result() == "answer"


async def test_a_task_set_cancels_and_awaits_its_tasks_on_close() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    tasks = TaskSet()
    tasks.start(work())
    await asyncio.sleep(0)
    await tasks.close()
    assert ended.is_set() and len(tasks) == 0


async def test_a_task_set_reports_failures_but_not_cancellations() -> None:
    failures: list[BaseException] = []

    async def fail() -> None:
        raise KeyError("x")

    tasks = TaskSet(lambda _, error: failures.append(error))
    tasks.start(fail())
    tasks.start(answer(5)).cancel()
    await tasks.join()
    await asyncio.sleep(0)
    assert [type(error) for error in failures] == [KeyError]


async def test_a_detached_task_does_not_see_the_context_of_its_request() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    request.set("first")

    async def seen() -> str:
        return request.get()

    tasks = TaskSet()
    assert await tasks.start(seen()) == "first"
    assert await tasks.start(seen(), detached=True) == "none"


async def test_an_expired_cache_value_is_loaded_again() -> None:
    cache: TtlCache[str, int] = TtlCache(0.05, 10)
    load = Loader()
    assert [await cache.get("a", load), await cache.get("a", load)] == [1, 1]
    await asyncio.sleep(0.06)
    assert len(cache) == 0  # expired values do not stay in memory
    assert await cache.get("a", load) == 2


async def test_the_time_to_live_of_a_cached_value_starts_before_its_load() -> None:
    cache: TtlCache[str, int] = TtlCache(0.05, 10)
    load = Loader()
    load.gate.clear()
    asked = asyncio.create_task(cache.get("a", load))
    await asyncio.sleep(0.06)
    load.gate.set()
    await asked
    assert await cache.get("a", load) == 2


async def test_concurrent_callers_share_a_cache_load_that_survives_a_cancelled_caller() -> None:
    cache: TtlCache[str, int] = TtlCache(5, 10)
    load = Loader()
    load.gate.clear()
    first, second = (asyncio.create_task(cache.get("a", load)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    load.gate.set()
    assert await second == 1 and load.loads == 1


async def test_a_failed_cache_load_raises_in_every_caller_and_is_not_cached() -> None:
    cache: TtlCache[str, int] = TtlCache(5, 10)
    load = Loader()
    load.error = KeyError("x")
    answers = await asyncio.gather(
        cache.get("a", load), cache.get("a", load), return_exceptions=True
    )
    assert list(answers) == [load.error, load.error] and load.loads == 1
    load.error = None
    assert await cache.get("a", load) == 2


@pytest.mark.parametrize("matching", [True, False])
async def test_a_load_in_progress_during_an_invalidation_is_not_cached(matching: bool) -> None:
    cache: TtlCache[str, int] = TtlCache(5, 10)
    load = Loader()
    load.gate.clear()
    asked = asyncio.create_task(cache.get("a", load))
    await asyncio.sleep(0.01)
    cache.forget("a" if matching else "b")
    after = asyncio.create_task(cache.get("a", load))
    await asyncio.sleep(0.01)
    load.gate.set()
    assert await asked == 1 and await after == 2
    assert await cache.get("a", load) == 2


async def test_forget_if_drops_only_matching_cache_values() -> None:
    cache: TtlCache[str, int] = TtlCache(5, 10)
    load = Loader()
    for key in "abc":
        await cache.get(key, load)
    cache.forget_if(lambda key, value: key == "a" or value == 2)
    assert len(cache) == 1 and await cache.get("c", load) == 3
    assert await cache.get("a", load) == 4


async def test_a_full_cache_drops_the_oldest_value() -> None:
    cache: TtlCache[str, int] = TtlCache(5, 2)
    load = Loader()
    for key in "abc":
        await cache.get(key, load)
    assert len(cache) == 2
    assert [await cache.get(key, load) for key in "bca"] == [2, 3, 4]


async def test_the_time_to_live_may_depend_on_the_cached_value() -> None:
    cache: TtlCache[str, int] = TtlCache(lambda value: 0 if value == 1 else 5, 10)
    load = Loader()
    assert [await cache.get("a", load) for _ in range(3)] == [1, 2, 2]


def failing(times: int, error: Exception) -> Callable[[], Coroutine[Any, Any, str]]:
    left = times

    async def call() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return "answer"

    return call


async def test_a_failing_call_is_retried_until_it_succeeds_and_each_failure_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await retry(failing(2, OSError("away")), OSError, within_s=5) == "answer"
    retried = [record for record in caplog.records if record.message == "call_retried"]
    assert [vars(record)["reason"] for record in retried] == ["away", "away"]


async def test_a_retry_gives_up_at_its_deadline() -> None:
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="away"):
            await retry(failing(10**6, OSError("away")), OSError, within_s=0.5)


async def test_an_error_of_another_type_is_not_retried() -> None:
    call = failing(1, KeyError("x"))
    with pytest.raises(KeyError):
        await retry(call, OSError, within_s=5)
    assert await call() == "answer"


async def test_a_lease_is_renewed_despite_errors_until_another_process_holds_it() -> None:
    answers = [True, True, False, True]

    async def renew() -> bool:
        if len(answers) == 4:
            answers.pop(0)
            raise OSError("away")
        return answers.pop(0)

    await asyncio.wait_for(keep_lease(renew, 0.001, OSError), PATIENCE_S)
    assert answers == [True]


@pytest.mark.parametrize(("takes_s", "grace_s", "result"), [(0.1, 5, "answer"), (60, 0.1, None)])
async def test_work_without_its_lease_may_end_within_a_grace_time(
    takes_s: float, grace_s: float, result: str | None
) -> None:
    async def renew() -> bool:
        return False

    async with asyncio.timeout(30):
        assert await while_leased(answer(takes_s), renew, 0.01, OSError, grace_s) == result


async def test_leased_work_raises_errors_and_is_cancelled_with_its_caller() -> None:
    async def renew() -> bool:
        return True

    with pytest.raises(OSError, match="away"):
        await while_leased(failing(1, OSError("away"))(), renew, 0.01, OSError, 5)
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    caller = asyncio.create_task(while_leased(work(), renew, 0.01, OSError, 5))
    await asyncio.sleep(0.05)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert caller.cancelled() and ended.is_set()


async def test_a_call_beyond_its_deadline_raises_timeout_error() -> None:
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError):
            await within_deadline(answer(3600), 0.05)


async def test_an_answer_that_came_while_the_event_loop_was_blocked_is_returned() -> None:
    asked = asyncio.create_task(within_deadline(answer(0.01), 0.05))
    await asyncio.sleep(0)
    time.sleep(0.2)
    assert await asked == "answer"


async def test_within_deadline_raises_the_error_of_the_call() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await within_deadline(fail(), 0.05)


async def test_cancelling_the_caller_cancels_the_call_with_a_deadline() -> None:
    ended = asyncio.Event()

    async def call() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ended.set()

    asked = asyncio.create_task(within_deadline(call(), 5))
    await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.wait_for(ended.wait(), PATIENCE_S)


async def test_a_waiter_cancelled_together_with_its_event_is_cancelled() -> None:
    event = asyncio.Event()
    waiter = asyncio.create_task(wait_within(event, PATIENCE_S))
    await asyncio.sleep(0)
    event.set()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
