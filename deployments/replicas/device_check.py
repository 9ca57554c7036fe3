"""Asks whether the devices of engines still work, without waiting for a device that hangs."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread

from models.base import Engine
from models.errors import DeviceFailed

ANSWER_S = 5.0  # time for an answer; a device that works takes milliseconds


class DeviceCheck:
    """Asks in a thread of its own, because a device that hangs would block a shared thread."""

    def __init__(self) -> None:
        self._answer: Future[None] | None = None  # the last answer, or the one that is awaited

    async def run(self, engines: Sequence[Engine]) -> None:
        """Raise the error of a device, or DeviceFailed without an answer within ANSWER_S."""
        if self._answer is None or self._answer.done():
            self._answer = Future()
            Thread(target=_ask, args=(engines, self._answer), daemon=True, name="device").start()
        answered, _ = await asyncio.wait([asyncio.wrap_future(self._answer)], timeout=ANSWER_S)
        if not answered:
            raise DeviceFailed(f"the device of the model gave no answer for {ANSWER_S:.0f} s")
        await answered.pop()


def _ask(engines: Sequence[Engine], answer: Future[None]) -> None:
    try:
        for engine in engines:
            engine.check_device()
    except Exception as error:  # any library may raise
        answer.set_exception(error)
    else:
        answer.set_result(None)
