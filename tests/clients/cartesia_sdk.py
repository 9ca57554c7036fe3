"""Cartesia's own client, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import io
import json
import sys
import wave
from pathlib import Path
from typing import Any

from cartesia import APIStatusError, AsyncCartesia, Cartesia
from cartesia.types import STTTranscribeResponse

SENTENCE = "A sentence for the room."
VOICE = {"mode": "id", "id": "6ccbfb76-1fc6-48f7-b71d-91ac6298247b"}
EXAMPLES = (  # ids that programs of vendors name
    "db6b0ed5-d5d3-463d-ae85-518a07d3c2b4",  # this client's README
    "e07c00bc-4134-4eae-9ea4-1a55fb45746b",
    "9626c31c-bec5-4cca-baa8-f8ba9e84c8bc",  # LiveKit's starter agent
    "b7d50908-b17c-442d-ad8d-810c63997ed9",  # Pipecat's examples
    "4d2fd738-3b3d-4368-957a-bb4805275bd9",
    "ef191366-f52f-447a-a398-ed8c0f2943a1",  # Cartesia's MCP server
)
RAW: Any = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}
GIVEN: Any = {"model_id": "sonic-3", "voice": VOICE}
SPEECH: Any = {**GIVEN, "transcript": SENTENCE}


def addresses(url: str) -> dict[str, Any]:
    socket = url.replace("http", "ws", 1)
    return {"base_url": f"{url}/cartesia", "websocket_base_url": f"{socket}/cartesia"}


def clones(client: Cartesia, path: str) -> dict[str, Any]:
    """Voices from a recording of two seconds, which is too short, and from one of 16 s."""
    with wave.open(path) as recording:
        rate, frames = recording.getframerate(), recording.readframes(recording.getnframes())
    clip = io.BytesIO()
    with wave.open(clip, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(frames * 8)
    try:
        client.voices.clone(clip=Path(path), name="Ann", language="en")
        refused: list[Any] = []
    except APIStatusError as error:
        refused = [error.status_code, error.body["error_code"], error.body["message"]]
    voice = client.voices.clone(clip=clip.getvalue(), name="Ann", language="en")
    client.voices.delete(voice.id)
    return {"short": refused, "long": [voice.name, voice.language]}


def blocking(url: str, key: str, path: str) -> dict[str, Any]:
    client = Cartesia(api_key=key, max_retries=0, **addresses(url))
    seen: dict[str, Any] = {
        "bytes": len(client.tts.generate(**SPEECH, output_format=RAW).read()) / 32_000,
        "voices": [one.id for one in client.voices.list(limit=2)],
    }
    first = client.voices.get(seen["voices"][0])
    before = client.voices.list(limit=2, ending_before=seen["voices"][3]).data
    seen["page before"] = [one.id for one in before] == seen["voices"][1:3]
    named = (VOICE["id"], *EXAMPLES)
    seen["stand-ins"] = [client.voices.get(voice_id).id == voice_id for voice_id in named]
    seen["voice"] = [first.id == seen["voices"][0], first.language, first.is_owner]
    events = list(client.tts.generate_sse(**SPEECH, output_format=RAW, add_timestamps=True))
    chunks = [one for one in events if one.type == "chunk"]
    seen["sse"] = sum(len(one.audio or b"") for one in chunks) / 32_000
    seen["sse words"] = words(events)
    seen["sse end"] = events[-1].type
    token = client.access_token.create(grants={"tts": True}, expires_in=60).token
    short = Cartesia(token=token, max_retries=0, **addresses(url))
    seen["by the token"] = len(short.tts.generate(**SPEECH, output_format=RAW).read()) / 32_000
    with client.tts.websocket_connect() as socket:
        seen["socket"] = spoken(socket)
    seen["refused"] = [
        refusal(client, transcript=""),
        refusal(client, voice={"id": "none"}),
        refusal(Cartesia(api_key="sk_wrong", max_retries=0, **addresses(url))),
    ]
    seen["clones"] = clones(client, path)
    return seen


def spoken(socket: Any) -> dict[str, Any]:
    """A context of two flushes, then one with the defaults of the client."""
    context = socket.context(**GIVEN, output_format=RAW, add_timestamps=True)
    context.push("Stay hungry, ")
    context.push("", flush=True)
    context.push("stay foolish.")
    context.no_more_inputs()
    events = list(context.receive())
    flushes: dict[int, int] = {}
    for one in events:
        if one.type == "chunk":
            flushes[one.flush_id] = flushes.get(one.flush_id, 0) + len(one.audio)
    floats = socket.context(**GIVEN)
    floats.push(SENTENCE)
    floats.no_more_inputs()
    audio = b"".join(one.audio for one in floats.receive() if one.type == "chunk")
    wrong = socket.context(**{**GIVEN, "voice": {"id": "none"}}, output_format=RAW)
    wrong.push(SENTENCE)
    error = list(wrong.receive())[-1]
    return {
        "flushes": [flushes[one] / 32_000 for one in sorted(flushes)],
        "kinds": sorted({one.type for one in events}),
        "words": words(events),
        "floats": len(audio) / 4 / 44_100,
        "error": [error.type, error.status_code, error.title],
    }


def words(events: Any) -> list[str]:
    timed = (one.word_timestamps for one in events if one.type == "timestamps")
    return [word for one in timed for word in one.words]


def refusal(client: Any, **changes: Any) -> list[Any]:
    try:
        client.tts.generate(**{**SPEECH, **changes}, output_format=RAW)
    except APIStatusError as error:
        return [error.status_code, error.body["title"]]
    return ["nothing was refused"]


async def side_by_side(url: str, key: str) -> list[float]:
    """Two contexts of one socket, each with its own sentence."""
    lengths = []
    async with AsyncCartesia(api_key=key, **addresses(url)) as client:
        async with client.tts.websocket_connect() as socket:
            contexts = [socket.context(**GIVEN, output_format=RAW) for _ in range(2)]
            for number, context in enumerate(contexts, start=1):
                await context.push(SENTENCE * number)
                await context.no_more_inputs()
            for context in contexts:
                audio = [one.audio async for one in context.receive() if one.type == "chunk"]
                lengths.append(sum(map(len, audio)) / 32_000)
    return lengths


def listen(url: str, key: str, path: str) -> dict[str, Any]:
    client = Cartesia(api_key=key, max_retries=0, **addresses(url))
    with open(path, "rb") as file:
        heard = client.stt.transcribe(
            file=file, model="ink-whisper", timestamp_granularities=["word"]
        )
    strict = STTTranscribeResponse.model_validate(heard.model_dump(), strict=True)
    with wave.open(path) as recording:
        rate, pcm = recording.getframerate(), recording.readframes(recording.getnframes())
    options: Any = {"encoding": "pcm_s16le", "model": "ink-2", "sample_rate": rate}
    with client.stt.manual_finalize.websocket(**options, keyterm=["Kokoro"]) as socket:
        socket.send_raw(pcm)
        socket.send("finalize")
        socket.send("close")
        finals = list(socket)
    return {
        "text": strict.text,
        "words": [one.word for one in strict.words or []],
        "manual": "".join(one.text for one in finals if one.type == "transcript" and one.is_final),
        "kinds": sorted({one.type for one in finals}),
        "turns": asyncio.run(turns(url, key, pcm, rate)),
    }


async def turns(url: str, key: str, pcm: bytes, rate: int) -> list[Any]:
    """The events of a turn, of which the text is kept, sent twice as fast as it sounds."""
    seen = []
    options: Any = {"encoding": "pcm_s16le", "model": "ink-2", "sample_rate": rate}
    async with AsyncCartesia(api_key=key, **addresses(url)) as client:
        async with client.stt.auto_finalize.websocket(**options) as socket:

            async def say() -> None:
                for at in range(0, len(pcm) + 8 * rate, rate // 5):
                    piece = pcm[at : at + rate // 5] or bytes(rate // 5)
                    await socket.send_raw(piece)
                    await asyncio.sleep(0.05)

            saying = asyncio.create_task(say())
            async for event in socket:
                seen.append([event.type, getattr(event, "transcript", "")])
                if event.type == "turn.end":
                    break
            saying.cancel()
    return seen


def see(url: str, key: str, path: str) -> dict[str, Any]:
    spoken = {**blocking(url, key, path), "side by side": asyncio.run(side_by_side(url, key))}
    return {**spoken, "heard": listen(url, key, path)}


sys.stdout.write(json.dumps(see(*sys.argv[1:4])) + "\n")
