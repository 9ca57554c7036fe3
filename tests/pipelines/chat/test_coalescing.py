"""Coalescing: the pieces of a stream are joined without loss."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from pipelines.chat.coalescing import coalesce


class Source:
    """Yields letters, each after a pause; records whether it was closed."""

    def __init__(self, letters: str, pause_s: float, error: Exception | None = None) -> None:
        self._letters, self._pause_s, self._error = letters, pause_s, error
        self.closed = False

    async def stream(self) -> AsyncGenerator[str, None]:
        try:
            for letter in self._letters:
                await asyncio.sleep(self._pause_s)
                yield letter
            if self._error:
                raise self._error
        finally:
            self.closed = True


def joined(source: Source, interval_s: float) -> AsyncGenerator[str, None]:
    return coalesce(source.stream(), lambda left, right: left + right, interval_s)


async def test_a_fast_stream_is_joined_into_few_pieces_after_the_first() -> None:
    pieces = [piece async for piece in joined(Source("abcdefghij" * 10, 0.001), 0.5)]
    assert "".join(pieces) == "abcdefghij" * 10
    assert pieces[0] == "a"
    assert len(pieces) < 20


async def test_a_slow_stream_is_not_delayed() -> None:
    pieces = [piece async for piece in joined(Source("abc", 0.3), 0.001)]
    assert pieces == ["a", "b", "c"]


async def test_an_urgent_item_is_not_delayed() -> None:
    stream = Source("abc,def", 0.001).stream()
    pieces = [one async for one in coalesce(stream, str.__add__, 30.0, lambda one: one == ",")]
    assert pieces == ["a", "bc,", "def"]


async def test_the_end_of_a_stream_is_not_delayed_by_the_interval() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    pieces = [piece async for piece in joined(Source("ab", 0.01), 30.0)]
    assert pieces == ["a", "b"]
    assert loop.time() - started < 20


async def test_an_empty_stream_yields_nothing() -> None:
    assert [piece async for piece in joined(Source("", 0), 0.01)] == []


async def test_an_error_is_raised_after_the_pieces_that_preceded_it() -> None:
    pieces: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        async for piece in joined(Source("abc", 0.001, ValueError("broken")), 0.05):
            pieces.append(piece)
    assert "".join(pieces) == "abc"


async def test_closing_the_joined_stream_closes_its_source() -> None:
    source = Source("abc" * 100, 0.01)
    stream = joined(source, 0.02)
    await anext(stream)
    await stream.aclose()
    assert source.closed
