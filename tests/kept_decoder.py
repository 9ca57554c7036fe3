"""A decoder of audio whose process serves all tests of a run: each start of one is a third of a
second of work."""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

from pipelines.audio.decode.decoder import JOB_TIMEOUT_S, AudioDecoder, DecoderProcess, OpenFile

T = TypeVar("T")


class KeptDecoder(AudioDecoder):
    """As the service has it, except that its process outlives it."""

    def __init__(self) -> None:
        super().__init__()
        self._process = _process()

    async def close(self) -> None:
        """Leaves the process to the next."""


class _KeptProcess(DecoderProcess):
    """Works on an event loop of its own, since those of tests end with them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(JOB_TIMEOUT_S)
        self._loop = loop

    async def start(self) -> asyncio.subprocess.Process:
        return await self._there(super().start())

    async def run(self, job: dict[str, Any], source: OpenFile, target: OpenFile) -> bytes:
        return await self._there(super().run(job, source, target))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


@cache
def _process() -> _KeptProcess:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    process = _KeptProcess(loop)
    atexit.register(lambda: asyncio.run_coroutine_threadsafe(process.stop(), loop).result())
    return process
