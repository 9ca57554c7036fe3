"""A deadline for others: what held up this process does not count against who is asked."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

PATIENCE = 4  # timeouts of one question, when this process was late itself
STEPS = 10  # of the loop between an answer's bytes and its reader

T = TypeVar("T")


async def within_deadline(question: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Raises TimeoutError, after which the question is cancelled; nobody waits for its end.

    A loop that was busy looks for an answer that came meanwhile, and waits again when it was late
    itself.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(question)
    try:
        for _ in range(PATIENCE):
            began = loop.time()
            await asyncio.wait([task], timeout=timeout_s)
            late_s = loop.time() - began - timeout_s
            for _ in range(STEPS):
                if task.done():
                    return task.result()
                await asyncio.sleep(0)
            if late_s < timeout_s / 2:
                break
        raise TimeoutError
    finally:
        if not task.done():
            task.add_done_callback(_seen)
            task.cancel()


def _seen(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()
