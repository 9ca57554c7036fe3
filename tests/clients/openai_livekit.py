"""LiveKit's plugins for OpenAI, pointed at this service. Arguments: base URL, key, a recording.

Run by the interpreter of .venv-clients; prints what they read as one line of JSON.
"""

import sys
import wave
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import APIError, llm
from livekit.agents.utils import http_context
from livekit.plugins import openai

from tests.clients.livekit_harness import ONCE, SENTENCES, audio, report
from tests.clients.openai_texts import CALL, TEXT


@llm.function_tool  # type: ignore[untyped-decorator]  # not of this environment
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


async def chat(model: Any, text: str, tools: list[Any]) -> dict[str, Any]:
    context = llm.ChatContext.empty()
    context.add_message(role="user", content=text)
    seen: dict[str, Any] = {"text": "", "calls": [], "tokens": None}
    async with model.chat(chat_ctx=context, tools=tools, conn_options=ONCE) as stream:
        async for chunk in stream:
            if chunk.delta is not None:
                seen["text"] += chunk.delta.content or ""
                seen["calls"] += [[one.name, one.arguments] for one in chunk.delta.tool_calls]
            if chunk.usage is not None:
                seen["tokens"] = chunk.usage.completion_tokens
    return seen


async def speak(base_url: str, key: str, text: str, **options: Any) -> dict[str, Any]:
    tts = openai.TTS(base_url=base_url, api_key=key, **options)
    try:
        async with tts.synthesize(text, conn_options=ONCE) as stream:
            return await audio(stream)
    except APIError as error:
        return {"error": str(error)}
    finally:
        await tts.aclose()


async def listen(base_url: str, key: str, path: str, **options: Any) -> dict[str, Any]:
    with wave.open(path) as file:
        data = file.readframes(file.getnframes())
        frame = rtc.AudioFrame(data, file.getframerate(), 1, file.getnframes())
    stt = openai.STT(base_url=base_url, api_key=key, use_realtime=False, **options)
    event = await stt.recognize([frame], conn_options=ONCE)
    heard = event.alternatives[0]
    return {"text": heard.text, "language": str(heard.language)}


async def see(base_url: str, key: str, path: str) -> dict[str, Any]:
    model = openai.LLM(base_url=base_url, api_key=key)
    speech = (base_url, key, SENTENCES)
    async with aiohttp.ClientSession() as session:
        http_context._ContextVar.set(lambda: session)
        return {
            "chat": await chat(model, TEXT, []),
            "tools": await chat(model, CALL, [weather]),
            "events": await speak(*speech),
            "bytes": await speak(*speech, model="tts-1", voice="onyx"),
            "formats": {
                name: await speak(*speech, response_format=name)
                for name in ("pcm", "wav", "opus", "aac", "flac")
            },
            "unknown": await speak(*speech, voice="unknown"),
            "heard": await listen(base_url, key, path),
            "detected": await listen(
                base_url, key, path, model="gpt-4o-transcribe", detect_language=True
            ),
        }


report(see(*sys.argv[1:4]))
