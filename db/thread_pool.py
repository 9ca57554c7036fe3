"""Blocking calls to a server that may hang, in threads that nothing else waits for."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class BoundedThreadPool:
    """Who waits for a server that hangs is told after a while, and who comes then at once."""

    def __init__(self, threads: int, answer_s: float, name: str) -> None:
        """So many calls run at once; each has `answer_s`, the wait for a thread in it."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._count = threads
        self._answer_s = answer_s
        self._hung: set[Future[Any]] = set()  # abandoned calls whose threads still wait

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns. Raises what it raises, or TimeoutError.

        After that the work may still be done; what had not begun is not.
        """
        if self._hung:
            self._hung = {call for call in self._hung if not call.done()}
        if len(self._hung) == self._count:
            raise TimeoutError("no call is answered")
        call = self._threads.submit(work)
        try:
            async with asyncio.timeout(self._answer_s):
                return await asyncio.wrap_future(call)
        except TimeoutError:
            if not call.done():  # one that had not begun was cancelled, and has ended
                self._hung.add(call)
            raise

    def close(self) -> None:
        """Ends the threads, when their calls have ended."""
        self._threads.shutdown()
