"""Coalescing: fewer and larger items of a stream, for a consumer with a cost per item."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

T = TypeVar("T")


async def coalesce(
    items: AsyncGenerator[T, None],
    merge: Callable[[T, T], T],
    interval_s: float,
    is_urgent: Callable[[T], bool] = lambda _: False,
) -> AsyncGenerator[T, None]:
    """Yields the first item at once, then the merged later ones, at most once in `interval_s`;
    with an urgent one at once.

    Nothing is held back once `items` has ended. Closing it closes `items`; its errors are raised
    after the items that precede them.
    """
    loop = asyncio.get_running_loop()
    waiting: list[T] = []
    arrived, hurries = asyncio.Event(), asyncio.Event()

    async def pull() -> None:
        async with aclosing(items):
            async for item in items:
                waiting[:] = [merge(waiting[0], item)] if waiting else [item]
                arrived.set()
                if is_urgent(item):
                    hurries.set()

    def end(_: asyncio.Task[None]) -> None:
        arrived.set()
        hurries.set()

    pulling = asyncio.create_task(pull())
    pulling.add_done_callback(end)
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            if waiting:
                due = loop.time() + interval_s
                hurries.clear()
                yield waiting.pop()
                if not pulling.done():
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(due):
                            await hurries.wait()
            elif pulling.done():
                await pulling
                return
            if waiting or pulling.done():
                arrived.set()
    finally:
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
