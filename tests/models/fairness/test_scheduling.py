"""DeadlineScheduler: the order in which steps of requests run in threads."""

import asyncio
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any
from unittest.mock import Mock

import pytest

from models.fairness.scheduling import DeadlineScheduler, RequestExecutor
from models.fairness.shares import CONTENDED_S
from pipelines.tasks import iterate_in_thread
from tests.clock import Clock
from tests.patience import PATIENCE_S


@pytest.fixture
def turns() -> DeadlineScheduler:
    return make_scheduler(1)


def make_scheduler(max_concurrency: int) -> DeadlineScheduler:
    """Four threads, of which `max_concurrency` may work; the clock is fixed, no step is empty."""
    return DeadlineScheduler(
        4, "test", lambda: max_concurrency, lambda item: False, clock=lambda: 100.0
    )


class BlockedThread:
    """Keeps a thread of the scheduler busy until `unblock`."""

    def __init__(self, turns: DeadlineScheduler, deadline: float = 0.0) -> None:
        self._go, begun = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            self._go.wait(PATIENCE_S)

        turns.put(deadline, hold)
        assert begun.wait(PATIENCE_S)

    def unblock(self) -> None:
        self._go.set()


def finish(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result(PATIENCE_S)


def test_the_earliest_deadline_is_served_first_and_equal_ones_as_they_came(
    turns: DeadlineScheduler,
) -> None:
    blocked = BlockedThread(turns)
    served: list[str] = []
    slack_s = {"last": 5.0, "first": 0.0, "second": 2.0, "third": 2.0}
    futures = [turns.executor(slack).submit(served.append, name) for name, slack in slack_s.items()]
    blocked.unblock()
    finish(futures)
    assert served == ["first", "second", "third", "last"]


def test_streams_of_one_tenant_begin_at_once_in_an_engine_for_four() -> None:
    turns = make_scheduler(4)
    begun = threading.Barrier(4)
    finish([turns.executor(2.0, "a").submit(begun.wait, PATIENCE_S) for _ in range(4)])


def test_an_engine_for_more_than_the_threads_keeps_the_order_of_deadlines() -> None:
    turns = make_scheduler(40)
    blocked = [BlockedThread(turns, deadline=200.0) for _ in range(4)]
    served: list[str] = []
    slack_s = {"last": 9.0, "second": 2.0, "first": 1.0}
    futures = [turns.executor(slack).submit(served.append, name) for name, slack in slack_s.items()]
    blocked[0].unblock()
    finish(futures)
    for thread in blocked[1:]:
        thread.unblock()
    assert served == ["first", "second", "last"]


def test_a_backlog_of_one_tenant_delays_another_by_one_step() -> None:
    clock = Clock()
    turns = DeadlineScheduler(1, "test", clock=clock)
    blocked = BlockedThread(turns)
    served: list[str] = []

    def work(owner: str) -> None:
        clock.now += 0.1
        served.append(owner)

    futures = [turns.executor(0.0, "flood").submit(work, "flood") for _ in range(9)]
    futures += [turns.executor(9.0, "other").submit(work, "other") for _ in range(2)]
    blocked.unblock()
    finish(futures)
    assert served.index("other") <= 1 and served[:4].count("other") == 2


def test_the_last_thread_waits_a_minute_for_another_tenant() -> None:
    clock = Mock(return_value=100.0)
    turns = DeadlineScheduler(2, "test", clock=clock)
    turns.executor(owner="other").submit(int).result(PATIENCE_S)
    begun, go = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        go.wait(PATIENCE_S)

    flood = [turns.executor(owner="flood").submit(work) for _ in range(3)]
    assert begun.acquire(timeout=PATIENCE_S)
    turns.executor(owner="other").submit(int).result(PATIENCE_S)
    assert not begun.acquire(timeout=0.05)
    clock.return_value += CONTENDED_S + 1
    flood.append(turns.executor(owner="flood").submit(work))
    assert begun.acquire(timeout=PATIENCE_S)
    go.set()
    for future in flood:
        future.result(PATIENCE_S)


@pytest.mark.parametrize("max_concurrency", [1, 2])
def test_concurrent_steps_do_not_exceed_the_concurrency_of_the_engine(max_concurrency: int) -> None:
    turns = make_scheduler(max_concurrency)
    begun = threading.Semaphore(0)
    go = threading.Event()

    def work() -> None:
        begun.release()
        go.wait(PATIENCE_S)

    futures = [turns.executor(0.0).submit(work) for _ in range(3)]
    for _ in range(max_concurrency):
        assert begun.acquire(timeout=PATIENCE_S)
    assert not begun.acquire(timeout=0.05)
    go.set()
    finish(futures)


def test_a_request_with_time_to_spare_waits_while_a_tight_one_runs() -> None:
    turns = make_scheduler(2)
    blocked = BlockedThread(turns, 100.5)
    served: list[str] = []
    patient = turns.executor(5.0).submit(served.append, "patient")
    turns.executor(1.5).submit(served.append, "soon").result(PATIENCE_S)  # beside the blocked one
    assert served == ["soon"]
    blocked.unblock()
    patient.result(PATIENCE_S)


def test_work_on_another_machine_waits_for_no_tight_request() -> None:
    turns = DeadlineScheduler(2, "test", clock=lambda: 100.0, is_remote=lambda: True)
    blocked = BlockedThread(turns, 100.5)
    turns.executor(5.0).submit(int).result(PATIENCE_S)
    blocked.unblock()


def test_a_request_whose_deadline_was_extended_yields(turns: DeadlineScheduler) -> None:
    ahead, late = turns.executor(0.0), turns.executor(0.5)
    ahead.extend_deadline(1.0)
    blocked = BlockedThread(turns)
    served: list[str] = []
    futures = [ahead.submit(served.append, "ahead"), late.submit(served.append, "late")]
    blocked.unblock()
    finish(futures)
    assert served == ["late", "ahead"]


def test_a_request_that_was_cancelled_in_the_queue_is_not_served(turns: DeadlineScheduler) -> None:
    blocked = BlockedThread(turns)
    served: list[str] = []
    gone, stays = turns.executor(0.0), turns.executor(1.0)
    gone.submit(served.append, "gone")
    future = stays.submit(served.append, "stays")
    gone.leave()
    blocked.unblock()
    future.result(PATIENCE_S)
    assert served == ["stays"]


def test_an_error_reaches_only_its_own_request(turns: DeadlineScheduler) -> None:
    def fail() -> None:
        raise ValueError("broken")

    broken, whole = turns.executor(0.0).submit(fail), turns.executor(0.0).submit(lambda: 7)
    with pytest.raises(ValueError, match="broken"):
        broken.result(PATIENCE_S)
    assert whole.result(PATIENCE_S) == 7


async def _first(line: RequestExecutor, generator: Generator[int, None, None]) -> Any:
    async with aclosing(iterate_in_thread(generator, line)) as items:
        async for item in items:
            return item


async def test_the_generator_of_a_reader_cancelled_in_the_queue_is_closed(
    turns: DeadlineScheduler,
) -> None:
    closed = threading.Event()

    def count() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            closed.set()

    generator, line = count(), turns.executor(0.0)
    assert next(generator) == 1
    blocked = BlockedThread(turns)
    reader = asyncio.create_task(_first(line, generator))
    await asyncio.sleep(0.01)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    line.leave()
    await asyncio.sleep(0.01)
    assert closed.is_set()  # though the thread is still busy with another request
    blocked.unblock()


def test_a_request_keeps_its_turn_over_empty_steps(turns: DeadlineScheduler) -> None:
    turns.is_empty = lambda item: item is None
    steps = iter([None, None, "sound"])
    assert turns.executor(0.0).submit(next, steps).result(PATIENCE_S) == "sound"


def test_an_earlier_deadline_takes_over_between_two_steps(turns: DeadlineScheduler) -> None:
    turns.is_empty = lambda item: item is None
    served: list[str] = []
    urgent = turns.executor(0.0)

    def serve() -> str:
        served.append("urgent")
        return "urgent"

    def step() -> None:
        served.append("patient")
        if len(served) == 1:
            urgent.submit(serve)

    assert turns.executor(1.0).submit(step).result(PATIENCE_S) is None
    turns.executor(2.0).submit(lambda: "end").result(
        PATIENCE_S
    )  # once the urgent one has been served
    assert served == ["patient", "urgent"]


def test_a_cancelled_request_ends_its_turn_after_the_current_step(turns: DeadlineScheduler) -> None:
    turns.is_empty = lambda item: item is None
    line = turns.executor(0.0)
    begun = threading.Event()
    future = line.submit(begun.set)  # set() returns None, an empty step, every time
    assert begun.wait(PATIENCE_S)
    line.leave()
    assert future.result(PATIENCE_S) is None
