"""A deadline that counts the time of others only."""

import asyncio
import time

import pytest

from pipelines.tasks import within_deadline


async def answer(after_s: float) -> str:
    await asyncio.sleep(after_s)
    return "answer"


async def test_an_answer_that_is_late_is_not_waited_for() -> None:
    began = time.perf_counter()
    with pytest.raises(TimeoutError):
        await within_deadline(answer(5), 0.05)
    assert time.perf_counter() - began < 0.5


async def test_an_answer_that_came_while_the_loop_was_busy_counts() -> None:
    asked = asyncio.create_task(within_deadline(answer(0.01), 0.05))
    await asyncio.sleep(0)
    time.sleep(0.2)
    assert await asked == "answer"


async def test_the_error_of_the_question_comes_through() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await within_deadline(fail(), 0.05)


async def test_who_leaves_ends_the_question() -> None:
    ended = asyncio.Event()

    async def question() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ended.set()

    asked = asyncio.create_task(within_deadline(question(), 5))
    await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.wait_for(ended.wait(), 1)
