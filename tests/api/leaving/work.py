"""A long piece of work for every route that admission control counts, and for every socket."""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection

from models.audio import float_to_pcm16
from tests.api.native.jobs.doing import RATE, recording
from tests.api.openai.realtime.client import RealtimeClient
from tests.contract.dialects import DIALECTS
from tests.hostile.audio_files import encode

SENTENCE = "The harbour lay still, and no ship came in sight. "
TEXT = SENTENCE * 90
MEDIUM = SENTENCE * 38  # as much as every dialect takes
SECONDS = 240.0  # of the recordings


@cache
def speech_file() -> bytes:
    return recording(SECONDS, every_s=5.0)


@cache
def compressed() -> str:
    """A recording of which a megabyte lasts long enough, in base64."""
    samples = np.frombuffer(speech_file()[44:], "<i2")[: 150 * RATE]
    return b64encode(encode("mp3", (samples / 32_768).astype(np.float32), RATE)).decode()


def filled(body: Any, voice_id: str) -> Any:
    """The body with what `{voice}` and `{mp3}` stand for."""
    text = json.dumps(body).replace("{voice}", voice_id)
    return json.loads(text.replace("{mp3}", compressed()) if "{mp3}" in text else text)


@dataclass(frozen=True)
class Work:
    """A request that keeps an engine busy for hundreds of steps."""

    service: str  # that is charged
    json: Any = None
    data: dict[str, str] | None = None
    file: str | None = None  # the field of the recording
    content: Callable[[], bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    is_streamed: bool = False


def chat(**fields: Any) -> Work:
    message = {"role": "user", "content": TEXT[:4000]}
    streams = bool(fields.get("stream"))
    body = {"messages": [message], "model": "svc/echo", "max_tokens": 900, **fields}
    return Work("chat", body, is_streamed=streams)


def completion(**fields: Any) -> Work:
    body = {"prompt": [TEXT[:4000]] * 2, "max_tokens": 900, **fields}
    return Work("chat", body, is_streamed=bool(fields.get("stream")))


def dialogue(*, is_streamed: bool = False) -> Work:
    line = {"text": SENTENCE, "voice_id": "{voice}"}
    return Work("tts", {"inputs": [line] * 90}, is_streamed=is_streamed)


def speech_of_dialects() -> Iterator[tuple[str, Work]]:
    """The requests for speech of the contract suite, whose text every dialect takes."""
    for dialect in DIALECTS:
        for call in dialect.speech:
            request = call.request(MEDIUM, "{voice}")
            headers = request.get("headers", {})
            work = Work("tts", request["json"], headers=headers, is_streamed=call.is_streamed)
            yield route_of(call.path), work


def route_of(path: str) -> str:
    return path.replace("{voice}", "{voice_id}")


def tool(name: str, **arguments: Any) -> Any:
    call = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}


MCP = {"Accept": "application/json, text/event-stream"}
SPOKEN = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}
RECORDED = {
    "role": "user",
    "content": [{"type": "input_audio", "input_audio": {"data": "{mp3}", "format": "mp3"}}],
}
OPENAI_STT = {"model": "whisper-1"}

# The names after `#` tell several kinds of work of one path apart.
REQUESTS: dict[str, Work] = {
    **dict(speech_of_dialects()),
    "/tts/explain": Work("tts", {"text": SENTENCE * 60}),
    "/v2/speak": Work("tts", {"text": MEDIUM}, is_streamed=True),
    "/v1/text-to-dialogue/stream": dialogue(is_streamed=True),
    "/v1/text-to-dialogue/with-timestamps": dialogue(),
    "/v1/text-to-dialogue/stream/with-timestamps": dialogue(is_streamed=True),
    "/stt": Work("stt", file="audio"),
    "/stt#speakers": Work("stt", data={"speaker_labels": "true"}, file="audio"),
    "/openai/v1/audio/transcriptions": Work("stt", data=OPENAI_STT, file="file"),
    "/openai/v1/audio/transcriptions#stream": Work(
        "stt", data={**OPENAI_STT, "stream": "true"}, file="file", is_streamed=True
    ),
    "/openai/v1/audio/translations": Work("stt", data=OPENAI_STT, file="file"),
    "/v1/listen": Work("stt", content=speech_file, headers={"Content-Type": "audio/wav"}),
    "/v1/speech-to-text": Work("stt", data={"model_id": "scribe_v1"}, file="file"),
    "/cartesia/stt": Work("stt", data={"model": "ink-whisper"}, file="file"),
    "/v1/forced-alignment": Work("stt", data={"text": SENTENCE}, file="file"),
    **{
        f"/v1/{name}/{{voice_id}}{end}": Work("stt", file="audio")
        for name in ("voice-changer", "speech-to-speech")
        for end in ("", "/stream")
    },
    "/v1/chat/completions": chat(stream=False),
    "/v1/chat/completions#stream": chat(stream=True),
    "/v1/chat/completions#correction": Work(
        "chat", {"text": "He go to school. " * 100, "tone": "formal", "stream": False}
    ),
    "/openai/v1/chat/completions": chat(),
    "/openai/v1/chat/completions#stream": chat(stream=True),
    "/openai/v1/chat/completions#recording": chat(messages=[RECORDED]),
    "/openai/v1/chat/completions#spoken": chat(**SPOKEN),
    "/openai/v1/chat/completions#spoken-stream": chat(**SPOKEN, stream=True),
    "/openai/v1/completions": completion(),
    "/openai/v1/completions#stream": completion(stream=True),
    "/openai/v1/embeddings": Work("embedding", {"input": [SENTENCE] * 2000}),
    "/openai/v1/responses": Work("chat", {"input": TEXT[:4000], "store": False}),
    "/openai/v1/responses#stream": Work(
        "chat", {"input": TEXT[:4000], "stream": True}, is_streamed=True
    ),
    "/mcp#transcribe": Work(
        "stt",
        tool("transcribe", audio="{mp3}"),
        headers=MCP,
    ),
}
NO_ENGINE = {
    "/voices": "measures recordings of minutes at most",
    "/v1/voices/add": "as voices",
    "/v1/voices/{voice_id}/edit": "changes a row",
    "/v1/voices/{voice_id}/settings/edit": "changes a row",
    "/cartesia/voices/clone": "as voices",
    "/openai/v1/audio/voices": "as voices",
    "/openai/v1/audio/voice_consents": "as speakers",
    "/openai/v1/audio/voice_consents/{consent_id}": "changes a row",
    "/speakers": "as voices",
    "/audio/verify": "its detector is tested in tests/pipelines/audio",
    "/jobs/transcriptions": "stores the recording",
    "/jobs/speech": "stores the document",
    "/jobs/speech/estimate": "reads the document",
    "/v2/upload": "stores the recording",
    "/v2/transcript": "stores a row",
    "/voices/{voice_id}/shares": "changes a row",
    "/voices/{voice_id}/export": "seals a file",
    "/voice-imports": "opens a sealed file",
    "/voice-shares": "changes a row",
    "/voice-shares/{share_id}/accept": "changes a row",
    "/pronunciations": "stores entries",
    "/consent-sentences": "chooses a sentence",
    "/openai/v1/realtime/calls": "answers an offer",
    "/openai/v1/files": "stores lines",
    "/openai/v1/batches": "stores a row",
    "/openai/v1/batches/{batch_id}/cancel": "changes a row",
    "/openai/v1/responses/{response_id}/cancel": "reads a row",
    "/openai/v1/responses/input_tokens": "ends with the first token",
    "/v1/pronunciation-dictionaries/add-from-rules": "stores entries",
    "/v1/pronunciation-dictionaries/add-from-file": "stores entries",
    **{
        f"/v1/pronunciation-dictionaries/{{dictionary_id}}/{change}-rules": "stores entries"
        for change in ("set", "add", "remove")
    },
    "/cartesia/access-token": "signs a token",
    "/v1/history/download": "reads files",
}

Begin = Callable[[ClientConnection, str], Awaitable[None]]


def pcm(seconds: float) -> bytes:
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    return float_to_pcm16((0.5 * np.sin(2 * np.pi * 220 * time_s)).astype(np.float32))


def messages(*each: dict[str, Any]) -> Begin:
    """Sends messages of JSON, in which {voice} stands for a voice."""

    async def begin(socket: ClientConnection, voice: str) -> None:
        for message in each:
            await socket.send(json.dumps(message).replace("{voice}", voice))

    return begin


def audio(*opening: dict[str, Any], seconds: float = 30.0, closing: Any = None) -> Begin:
    """Sends messages, and then audio in binary frames."""

    async def begin(socket: ClientConnection, voice: str) -> None:
        await messages(*opening)(socket, voice)
        data = pcm(seconds)
        for at in range(0, len(data), 16_000):
            await socket.send(data[at : at + 16_000])
        if closing is not None:
            await socket.send(json.dumps(closing))

    return begin


async def realtime(socket: ClientConnection, voice: str) -> None:
    client = RealtimeClient(socket)
    await client.write(TEXT[:4000])
    await client.send("response.create", response={"output_modalities": ["audio"]})


async def native(socket: ClientConnection, voice: str) -> None:
    await socket.send(json.dumps({"type": "start", "config": {"continuous_mode": True}}))
    data = pcm(30.0)
    for at in range(0, len(data), 16_000):
        piece = b64encode(data[at : at + 16_000]).decode()
        message = {"type": "audio", "audio": piece, "encoding": "linear", "sample_rate": 16_000}
        await socket.send(json.dumps(message))
    await socket.send(json.dumps({"type": "stop"}))


async def scribe(socket: ClientConnection, voice: str) -> None:
    data = pcm(30.0)
    for at in range(0, len(data), 16_000):
        piece = b64encode(data[at : at + 16_000]).decode()
        message = {"message_type": "input_audio_chunk", "audio_base_64": piece}
        ends = at + 16_000 >= len(data)
        await socket.send(json.dumps({**message, "sample_rate": 16_000, "commit": ends}))


def spoken(say: Callable[[str, str], Sequence[str | bytes]]) -> Begin:
    """Sends the frames that speak a text."""

    async def begin(socket: ClientConnection, voice: str) -> None:
        for frame in say(MEDIUM, voice):
            await socket.send(frame)

    return begin


# The address, what is sent there, and what is charged.
SOCKETS: dict[str, tuple[str, Begin, str]] = {
    **{
        route_of(kind.path): (kind.address("{voice}"), spoken(kind.say), "tts")
        for dialect in DIALECTS
        for kind in dialect.sockets
        if kind.path and kind.say
    },
    "/ws/stt": ("/ws/stt", native, "stt"),
    "/v1/listen": (
        "/v1/listen?encoding=linear16&sample_rate=16000",
        audio(closing={"type": "Finalize"}),
        "stt",
    ),
    "/v2/listen": (
        "/v2/listen?model=flux-general-en&encoding=linear16&sample_rate=16000",
        audio(),
        "stt",
    ),
    # With finals after pauses: by default, these sockets send one when the client asks for it.
    **{
        path: (
            f"{path}?model=ink-2&encoding=pcm_s16le&sample_rate=16000&max_silence_duration_secs=1",
            audio(),
            "stt",
        )
        for path in ("/cartesia/stt/websocket", "/stt/websocket")
    },
    "/v1/speech-to-text/realtime": (
        "/v1/speech-to-text/realtime?commit_strategy=vad",
        scribe,
        "stt",
    ),
    "/cartesia/stt/turns/websocket": (
        "/cartesia/stt/turns/websocket?model=ink-2&encoding=pcm_s16le&sample_rate=16000",
        audio(),
        "stt",
    ),
    "/v3/ws": ("/v3/ws?sample_rate=16000", audio(closing={"type": "ForceEndpoint"}), "stt"),
    "/openai/v1/realtime": ("/openai/v1/realtime?model=svc/echo", realtime, "chat"),
    "/openai/v1/responses": (
        "/openai/v1/responses",
        messages({"type": "response.create", "model": "svc/echo", "input": TEXT[:4000]}),
        "chat",
    ),
    "/telephony/twilio": (
        "/telephony/twilio",
        messages(
            {
                "event": "start",
                "start": {
                    "streamSid": "MZ0",
                    "customParameters": {"speaks_first": "true", "instructions": TEXT[:2000]},
                },
            }
        ),
        "chat",
    ),
}
