"""Pipecat's services for Inworld, pointed at this service. Arguments: URL, key.

Run by the interpreter of .venv-clients; prints its results as one line of JSON.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.inworld.tts import InworldHttpTTSService, InworldTTSService
from pipecat.workers.runner import WorkerRunner

from tests.clients.inworld_texts import LETTER, LONG, SENTENCE

TIMEOUT_S = 15


class FrameRecorder(FrameProcessor):  # type: ignore[misc]  # its types are in .venv-clients
    """Records the frames that the service sends in either direction."""

    def __init__(self, frames: "asyncio.Queue[Any]") -> None:
        super().__init__(enable_direct_mode=True)
        self._frames = frames

    async def process_frame(self, frame: Any, direction: Any) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame | TTSTextFrame | TTSStoppedFrame | ErrorFrame):
            self._frames.put_nowait(frame)
        await self.push_frame(frame, direction)


class Bot:
    """A pipeline of one service, fed as by a language model."""

    def __init__(self, worker: Any, frames: "asyncio.Queue[Any]") -> None:
        self._worker = worker
        self._frames = frames

    async def begin(self, text: str, step: int = 7) -> None:
        await self._worker.queue_frame(LLMFullResponseStartFrame())
        for start in range(0, len(text), step):
            await self._worker.queue_frame(LLMTextFrame(text[start : start + step]))

    async def end(self) -> None:
        await self._worker.queue_frame(LLMFullResponseEndFrame())

    async def interrupt(self) -> None:
        await self._worker.queue_frame(InterruptionFrame())

    async def receive_until(self, kind: Any) -> dict[str, Any]:
        """The results of all frames until one of that kind, or an error."""
        contexts: list[str] = []
        words: list[str] = []
        times: list[int] = []
        seconds = 0.0
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                frame = await self._frames.get()
                if isinstance(frame, ErrorFrame):
                    return {"error": frame.error}
                if frame.context_id not in contexts:
                    contexts.append(frame.context_id)
                if isinstance(frame, TTSAudioRawFrame):
                    seconds += len(frame.audio) / 2 / frame.sample_rate
                elif isinstance(frame, TTSTextFrame):
                    words.append(frame.text)
                    times.append(frame.pts or 0)
                if isinstance(frame, kind):
                    break
        return {"contexts": contexts, "words": words, "times": times, "seconds": seconds}

    async def turn(self, text: str, step: int = 7) -> dict[str, Any]:
        await self.begin(text, step)
        await self.end()
        return await self.receive_until(TTSStoppedFrame)

    async def discard_queued(self) -> None:
        """Discards the frames that are queued."""
        await asyncio.sleep(0.3)
        while not self._frames.empty():
            self._frames.get_nowait()


@asynccontextmanager
async def bot(service: Any) -> Any:
    frames: asyncio.Queue[Any] = asyncio.Queue()
    pipeline = Pipeline([FrameRecorder(frames), service, FrameRecorder(frames)])
    worker = PipelineWorker(pipeline, cancel_on_idle_timeout=False, enable_rtvi=False)
    started = asyncio.Event()

    async def on_started(*_: Any) -> None:
        started.set()

    worker.add_event_handler("on_pipeline_started", on_started)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    async with asyncio.timeout(TIMEOUT_S):
        await started.wait()
    try:
        yield Bot(worker, frames)
    finally:
        await worker.queue_frame(EndFrame())
        async with asyncio.timeout(TIMEOUT_S):
            await running


async def main(url: str, key: str) -> dict[str, Any]:
    ws_url = url.replace("http", "ws", 1) + "/tts/v1/voice:streamBidirectional"

    def socket(api_key: str = key, **settings: Any) -> Any:
        chosen = InworldTTSService.Settings(**settings)
        return InworldTTSService(api_key=api_key, url=ws_url, settings=chosen)

    seen: dict[str, Any] = {}
    async with bot(socket()) as one:
        seen["first"] = await one.turn(SENTENCE)
        seen["second"] = await one.turn(LETTER)
        await one.begin(LONG)
        seen["began"] = await one.receive_until(TTSAudioRawFrame)
        await one.interrupt()
        await one.discard_queued()
        seen["after"] = await one.turn(SENTENCE)
        await one.begin(LONG)
        await one.end()
        await one.receive_until(TTSAudioRawFrame)
        await one.interrupt()
        await one.discard_queued()
        seen["after the end"] = await one.turn(SENTENCE)
        for _ in range(7):  # empty turns leave contexts open
            await one.begin("")
            await one.interrupt()
        await one.discard_queued()
        seen["after nothing"] = await one.turn(SENTENCE)
    async with bot(socket(voice="Unknown")) as one:
        seen["unknown voice"] = await one.turn(SENTENCE)
    async with bot(socket(api_key="sk_wrong")) as one:
        seen["wrong key"] = await one.receive_until(ErrorFrame)

    async with aiohttp.ClientSession() as session:
        for streaming in (True, False):
            service = InworldHttpTTSService(
                api_key=key,
                aiohttp_session=session,
                streaming=streaming,
            )
            # It has no parameter for its address.
            service._base_url = service._base_url.replace("https://api.inworld.ai", url)
            async with bot(service) as one:
                seen[f"http, streaming: {streaming}"] = await one.turn(LETTER)
    return seen


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="DEBUG")
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
