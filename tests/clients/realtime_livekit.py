"""LiveKit's RealtimeModel and STT for OpenAI, pointed at this service. Arguments: base URL, key, a
recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
import wave
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.agents import stt as agents_stt
from livekit.agents.utils import http_context
from livekit.plugins import openai

from tests.clients.openai_texts import CALL, TEXT

LONG = "This is a rather long sentence that the agent says. " * 12


@llm.function_tool  # type: ignore[untyped-decorator]  # not of this environment
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


async def read(created: llm.GenerationCreatedEvent, interrupted_by: Any = None) -> dict[str, Any]:
    """One answer: its transcript, seconds of audio and calls."""
    seen: dict[str, Any] = {"text": "", "seconds": 0.0, "calls": []}

    async def hear(message: Any) -> None:
        async for frame in message.audio_stream:
            seen["seconds"] += frame.duration
            if interrupted_by is not None:
                interrupted_by.interrupt()

    async def messages() -> None:
        async for message in created.message_stream:
            hearing = asyncio.create_task(hear(message))
            async for text in message.text_stream:
                seen["text"] += str(text)
            await hearing

    reading = asyncio.create_task(messages())
    async for call in created.function_stream:
        seen["calls"].append([call.name, call.arguments, call.call_id])
    await reading
    return seen


async def listen(base_url: str, key: str, path: str) -> str:
    """The first final of the realtime STT."""
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    stt = openai.STT(base_url=base_url, api_key=key, use_realtime=True, model="whisper-1")
    async with stt.stream() as stream, asyncio.timeout(20):
        for part in (bytes(rate), data, bytes(rate * 4)):
            stream.push_frame(rtc.AudioFrame(part, rate, 1, len(part) // 2))
        async for event in stream:
            if event.type == agents_stt.SpeechEventType.FINAL_TRANSCRIPT:
                return str(event.alternatives[0].text)
    return ""


async def see(base_url: str, key: str, path: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as web:
        http_context._ContextVar.set(lambda: web)
        model = openai.realtime.RealtimeModel(base_url=base_url, api_key=key, turn_detection=None)
        session = model.session()
        errors: list[str] = []
        session.on("error", lambda event: errors.append(str(event.error)))
        context = llm.ChatContext.empty()

        async def ask(text: str, **options: Any) -> dict[str, Any]:
            context.add_message(role="user", content=text)
            await session.update_chat_ctx(context)
            seen = await read(await session.generate_reply(), **options)
            context.items[:] = session.chat_ctx.copy().items
            return seen

        await session.update_tools([weather])
        greeting = await ask(TEXT)
        called = await ask(CALL)
        for name, _, call_id in called["calls"]:
            output = llm.FunctionCallOutput(
                call_id=call_id, name=name, output="fine in Oslo", is_error=False
            )
            context.items.append(output)
        await session.update_chat_ctx(context)
        result = await read(await session.generate_reply())
        context.items[:] = session.chat_ctx.copy().items
        interrupted = await ask(LONG, interrupted_by=session)
        goodbye = await ask("Goodbye.")
        await session.aclose()
        await model.aclose()
        heard = await listen(base_url, key, path)
    return {
        "greeting": greeting,
        "called": called,
        "result": result,
        "interrupted": interrupted,
        "goodbye": goodbye,
        "errors": errors,
        "heard": heard,
    }


sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
