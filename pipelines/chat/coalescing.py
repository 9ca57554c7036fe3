"""Coalescing: fewer and larger items of a stream, for a consumer with a cost per item."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def coalesce(
    items: AsyncGenerator[T, None], merge: Callable[[T, T], T], interval_s: float
) -> AsyncGenerator[T, None]:
    """Yields the first item at once, then the merged later ones, at most once in `interval_s`.

    Nothing is held back once `items` has ended. Closing it closes `items`; its errors are raised
    after the items that precede them.
    """
    loop = asyncio.get_running_loop()
    waiting: list[T] = []
    arrived = asyncio.Event()

    async def pull() -> None:
        async with aclosing(items):
            async for item in items:
                waiting[:] = [merge(waiting[0], item)] if waiting else [item]
                arrived.set()

    pulling = asyncio.create_task(pull())
    pulling.add_done_callback(lambda _: arrived.set())
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            if waiting:
                yielded_at = loop.time()
                yield waiting.pop()
                if not pulling.done():
                    pause_s = yielded_at + interval_s - loop.time()
                    await asyncio.wait([pulling], timeout=max(0.0, pause_s))
            elif pulling.done():
                await pulling
                return
            if waiting or pulling.done():
                arrived.set()
    finally:
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
