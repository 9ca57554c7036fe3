"""The order in which a replica serves its requests."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import aclosing
from typing import Any

import pytest

from deployments.replicas.scheduling import DeadlineScheduler, RequestExecutor
from pipelines.tasks import iterate_in_thread
from tests.patience import PATIENCE_S


@pytest.fixture
def turns() -> DeadlineScheduler:
    return make_scheduler(1)


def make_scheduler(max_concurrency: int) -> DeadlineScheduler:
    """Four threads at a moment that never passes, of which so many may work; no step is empty."""
    return DeadlineScheduler(
        4, "test", lambda: max_concurrency, lambda item: False, clock=lambda: 100.0
    )


class Held:
    """Keeps a thread busy until it is let go."""

    def __init__(self, turns: DeadlineScheduler, deadline: float = 0.0) -> None:
        self._go, begun = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            self._go.wait(PATIENCE_S)

        turns.put(deadline, hold)
        assert begun.wait(PATIENCE_S)

    def let_go(self) -> None:
        self._go.set()


def test_the_request_with_the_least_slack_is_served_first(turns: DeadlineScheduler) -> None:
    held = Held(turns)
    served: list[float] = []
    lines = {slack: turns.executor(slack) for slack in (5.0, 0.0, 2.0)}
    futures = [line.submit(served.append, slack) for slack, line in lines.items()]
    held.let_go()
    for future in futures:
        future.result(PATIENCE_S)
    assert served == [0.0, 2.0, 5.0]


def test_requests_of_equal_slack_are_served_in_turn(turns: DeadlineScheduler) -> None:
    held = Held(turns)
    served: list[str] = []
    futures = [turns.executor(1.0).submit(served.append, name) for name in "abc"]
    held.let_go()
    for future in futures:
        future.result(PATIENCE_S)
    assert served == ["a", "b", "c"]


@pytest.mark.parametrize("max_concurrency", [1, 2])
def test_no_more_compute_at_once_than_the_concurrency_of_the_engine(max_concurrency: int) -> None:
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
    for future in futures:
        future.result(PATIENCE_S)


def test_who_has_time_stands_back_while_somebody_has_none() -> None:
    turns = make_scheduler(2)
    held = Held(turns, 100.5)
    served: list[str] = []
    patient = turns.executor(5.0).submit(served.append, "patient")
    turns.executor(1.5).submit(served.append, "soon").result(
        PATIENCE_S
    )  # beside the one who is held
    assert served == ["soon"]
    held.let_go()
    patient.result(PATIENCE_S)


def test_who_has_spoken_lets_another_speak(turns: DeadlineScheduler) -> None:
    ahead, late = turns.executor(0.0), turns.executor(0.5)
    ahead.extend_deadline(1.0)
    held = Held(turns)
    served: list[str] = []
    futures = [ahead.submit(served.append, "ahead"), late.submit(served.append, "late")]
    held.let_go()
    for future in futures:
        future.result(PATIENCE_S)
    assert served == ["late", "ahead"]


def test_a_request_that_leaves_gives_its_turn_back(turns: DeadlineScheduler) -> None:
    held = Held(turns)
    served: list[str] = []
    gone, stays = turns.executor(0.0), turns.executor(1.0)
    gone.submit(served.append, "gone")
    future = stays.submit(served.append, "stays")
    gone.leave()
    held.let_go()
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


async def test_a_generator_whose_reader_left_in_the_queue_is_closed(
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
    held = Held(turns)
    reader = asyncio.create_task(_first(line, generator))
    await asyncio.sleep(0.01)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    line.leave()
    await asyncio.sleep(0.01)
    assert closed.is_set()  # though the thread is still busy with another request
    held.let_go()


def test_a_turn_lasts_over_steps_that_give_nothing(turns: DeadlineScheduler) -> None:
    turns.is_empty = lambda item: item is None
    steps = iter([None, None, "sound"])
    assert turns.executor(0.0).submit(next, steps).result(PATIENCE_S) == "sound"


def test_a_more_urgent_request_takes_over_between_two_steps(turns: DeadlineScheduler) -> None:
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


def test_who_leaves_ends_his_turn_after_the_step(turns: DeadlineScheduler) -> None:
    turns.is_empty = lambda item: item is None
    line = turns.executor(0.0)
    begun = threading.Event()
    future = line.submit(begun.set)  # set() gives None, for ever
    assert begun.wait(PATIENCE_S)
    line.leave()
    assert future.result(PATIENCE_S) is None
