import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from models.llm.chunk_stream import ChunkStream

Push = Callable[[dict[str, Any]], bool]


def run(stream: ChunkStream, generate: Callable[[Any, Push], None]) -> threading.Thread:
    thread = threading.Thread(target=stream.run, args=(generate, {}))
    thread.start()
    return thread


async def test_chunks_are_delivered_in_order() -> None:
    stream = ChunkStream(asyncio.get_running_loop())

    def generate(_body: Any, push: Push) -> None:
        for n in range(10_000):
            push({"n": n})

    thread = run(stream, generate)
    numbers: list[int] = []
    while chunks := await stream.take():
        numbers += [chunk["n"] for chunk in chunks]
    thread.join()
    assert numbers == list(range(10_000))


async def test_a_slow_consumer_takes_all_ready_chunks_at_once() -> None:
    stream = ChunkStream(asyncio.get_running_loop())

    def push_five(_body: Any, push: Push) -> None:
        for n in range(5):
            push({"n": n})

    run(stream, push_five).join()
    assert [chunk["n"] for chunk in await stream.take()] == [0, 1, 2, 3, 4]
    assert await stream.take() == []


async def test_a_generation_error_is_raised_after_the_chunks_before_it() -> None:
    stream = ChunkStream(asyncio.get_running_loop())

    def generate(_body: Any, push: Push) -> None:
        push({"n": 1})
        raise ValueError("broken")

    run(stream, generate).join()
    assert await stream.take() == [{"n": 1}]
    with pytest.raises(ValueError, match="broken"):
        await stream.take()


async def test_push_asks_the_thread_to_stop_after_the_stream_is_closed() -> None:
    stream = ChunkStream(asyncio.get_running_loop())
    stop: list[bool] = []
    begun, closed = threading.Event(), threading.Event()

    def generate(_body: Any, push: Push) -> None:
        stop.append(push({}))
        begun.set()
        closed.wait()
        stop.append(push({}))

    thread = run(stream, generate)
    await asyncio.to_thread(begun.wait)
    stream.close()
    closed.set()
    thread.join()
    assert stop == [False, True]


async def test_a_stream_closed_before_its_thread_runs_generates_nothing() -> None:
    stream = ChunkStream(asyncio.get_running_loop())
    stream.close()
    run(stream, lambda _body, _push: pytest.fail("it generated")).join()
    assert await stream.take() == []


def test_a_closed_event_loop_stops_the_thread() -> None:
    loop = asyncio.new_event_loop()
    stream = ChunkStream(loop)
    loop.close()
    stop: list[bool] = []
    stream.run(lambda _body, push: stop.append(push({})), {})
    assert stop == [True]


def text(said: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": said}}]}


async def test_received_text_wakes_the_loop_at_intervals_and_at_its_end() -> None:
    """What a delivery has beside the text that was due: the end, or an error."""
    loop = asyncio.get_running_loop()
    stream = ChunkStream(loop, delivery_s=3600.0)
    pushed = [threading.Event() for _ in range(3)]
    go_on = [threading.Event() for _ in range(3)]

    def generate(_body: Any, push: Push) -> None:
        for chunks, done, start in zip(
            ([{"choices": []}, text("a")], [text("b"), text("c")], [{"usage": {}}]),
            pushed,
            go_on,
            strict=True,
        ):
            start.wait()
            for chunk in chunks:
                push(chunk)
            done.set()

    thread = run(stream, generate)
    go_on[0].set()
    await asyncio.to_thread(pushed[0].wait)
    assert [*await stream.take()] == [{"choices": []}, text("a")]
    go_on[1].set()
    await asyncio.to_thread(pushed[1].wait)
    taken = asyncio.ensure_future(stream.take())
    await asyncio.sleep(0.05)
    assert not taken.done()
    go_on[2].set()
    assert await taken == [text("b"), text("c"), {"usage": {}}]
    thread.join()
