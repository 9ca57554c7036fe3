"""Coalesces a stream into fewer and larger items, for a consumer with a cost per item."""

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
    """Yields the first item at once, then merged items, at most one per `interval_s`, but an urgent
    one at once. Closing it closes `items`, whose errors come after the items before them."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Queue[T | None]()  # None marks the end

    async def pull() -> None:
        async with aclosing(items):
            async for item in items:
                arrived.put_nowait(item)

    pulling = asyncio.create_task(pull())
    pulling.add_done_callback(lambda _: arrived.put_nowait(None))
    due = loop.time()
    ended = False
    try:
        while not ended and (piece := await arrived.get()) is not None:
            hurries = is_urgent(piece)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    while not hurries and (item := await arrived.get()) is not None:
                        piece, hurries = merge(piece, item), is_urgent(item)
                    ended = not hurries
            yield piece
            due = loop.time() + interval_s
        await pulling
    finally:
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)
