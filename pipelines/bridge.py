"""The one place where blocking generators meet the event loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")

_END = object()


async def iterate_in_thread(
    make: Callable[[], Generator[T, None, None]], executor: Executor | None = None
) -> AsyncGenerator[T, None]:
    """Pulls one item at a time from a blocking generator in a thread.

    When the consumer leaves, the pull in flight ends in its thread and the generator is closed
    there: closing it at once would fail with "generator already executing".
    """
    loop = asyncio.get_running_loop()
    generator = make()
    pull: asyncio.Future[object] | None = None
    try:
        while True:
            pull = loop.run_in_executor(executor, next, generator, _END)
            item = await asyncio.shield(pull)
            pull = None
            if item is _END:
                return
            yield item  # type: ignore[misc]
    finally:
        if pull is None or pull.done():
            generator.close()
        else:
            pull.add_done_callback(lambda done: _close(done, generator))


def _close(done: "asyncio.Future[object]", generator: Generator[T, None, None]) -> None:
    if not done.cancelled():
        done.exception()  # retrieved, so that asyncio does not warn of an unseen error
    generator.close()
