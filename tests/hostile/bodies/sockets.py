"""Sessions on every socket, in which one field of each message is broken."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI

from api.app import routed_app
from tests.hostile.bodies.breakages import break_one
from tests.hostile.bodies.samples import ARGUMENTS, SSML, Ids, realtime_session
from tests.hostile.bodies.site import ANSWERED_S, Site, shown

AUDIO = b64encode(bytes(3200)).decode()
QUIET_S = 0.05  # without an event, after which the next message is sent
MESSAGES = 12  # broken ones of a session; 20 wrong ones end it


@dataclass(frozen=True)
class Protocol:
    """A socket, messages that begin its session, and those that one of is broken."""

    path: str
    begins: Callable[[Ids], list[Any]]
    messages: Callable[[Ids], list[Any]]
    query: tuple[tuple[str, str], ...] = ()


def _contexts(ids: Ids) -> list[Any]:
    return [
        {
            "create_context": {
                "context_id": "b",
                "voice_id": ids["speaking_voice"],
                "audio_config": {"audio_encoding": "LINEAR16", "sample_rate_hertz": 16000},
                "speaking_rate": 1.1,
                "pitch": 1.0,
                "pronunciations": [{"id": ids["dictionary_id"]}],
                "timestamps": True,
            }
        },
        {"send_text": {"context_id": "a", "text": "Hello there."}},
        {"send_text": {"context_id": "a", "text": SSML}},
        {"flush_context": {"context_id": "a"}},
        {"close_context": {"context_id": "b"}},
    ]


def _inworld(ids: Ids) -> list[Any]:
    voicing = {
        "voiceId": ids["speaking_voice"],
        "audioConfig": {"audioEncoding": "LINEAR16", "sampleRateHertz": 16000},
        "timestampType": "CHARACTER",
        "temperature": 1.0,
        "maxBufferDelayMs": 100,
        "bufferCharThreshold": 50,
        "autoMode": True,
        "pronunciations": [{"id": ids["dictionary_id"]}],
    }
    return [
        {"contextId": "b", "create": voicing},
        {"contextId": "a", "send_text": {"text": "Hello there.", "flush_context": {}}},
        {"contextId": "a", "update_config": {**voicing, "audioConfig": {"speakingRate": 1.2}}},
        {"contextId": "a", "flush_context": {}},
        {"contextId": "b", "close_context": {}},
    ]


def _cartesia(ids: Ids) -> list[Any]:
    message = {
        "model_id": "sonic-3",
        "transcript": "Hello there. ",
        "voice": {"mode": "id", "id": ids["speaking_voice"]},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16000},
        "context_id": "a",
        "continue": True,
        "language": "en",
        "max_buffer_delay_ms": 10,
        "add_timestamps": True,
        "pronunciation_dict_id": ids["dictionary_id"],
        "generation_config": {"speed": 1.1},
    }
    return [message, {**message, "flush": True}, {"context_id": "a", "cancel": True}]


def _elevenlabs(ids: Ids) -> list[Any]:
    locator = {"pronunciation_dictionary_id": ids["dictionary_id"], "version_id": "1"}
    return [
        {
            "text": " ",
            "voice_settings": {"stability": 0.5, "speed": 1.1},
            "generation_config": {"chunk_length_schedule": [50, 120]},
            "pronunciation_dictionary_locators": [locator],
            "context_id": "a",
        },
        {"text": "Hello there. ", "try_trigger_generation": True, "context_id": "a"},
        {"text": "More.", "flush": True, "context_id": "a"},
        {"context_id": "a", "close_context": True},
    ]


def _dialogue(ids: Ids) -> list[Any]:
    locator = {"pronunciation_dictionary_id": ids["dictionary_id"], "version_id": "1"}
    return [
        {
            "context_id": "a",
            "voices": [ids["speaking_voice"]],
            "voice_settings": {"stability": 0.5},
            "pronunciation_dictionary_locators": [locator],
        },
        {
            "context_id": "a",
            "inputs": [{"text": "Hello there. ", "voice_id": ids["speaking_voice"]}],
        },
        {"context_id": "a", "keep_alive": True},
        {"context_id": "a", "flush": True},
        {"context_id": "a", "close_context": True},
    ]


def _stt(_: Ids) -> list[Any]:
    return [
        {
            "type": "start",
            "languages": ["en"],
            "config": {
                "encoding": "linear",
                "sample_rate": 16000,
                "utterance_end_ms": 500,
                "interim_results_frequency": 300,
                "keyterms": ["Ann"],
                "redact": ["all"],
                "speaker_labels": True,
                "known_speakers": True,
                "continuous_mode": True,
            },
        },
        {"type": "audio", "audio": AUDIO, "encoding": "linear", "sample_rate": 16000},
        {"type": "config", "languages": ["en"], "continuous_mode": True},
        {"type": "test", "message": "a", "timestamp": 1},
    ]


def _realtime(ids: Ids) -> list[Any]:
    def item(**fields: Any) -> dict[str, Any]:
        return {"type": "conversation.item.create", "event_id": "e", "item": fields}

    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ARGUMENTS}
    response = {
        "conversation": "none",
        "output_modalities": ["text"],
        "instructions": "Be brief.",
        "input": [user, call, {"type": "function_call_output", "call_id": "c", "output": "1"}],
        "tools": realtime_session()["tools"],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "metadata": {"a": "b"},
        "max_output_tokens": 20,
    }
    return [
        {"type": "session.update", "session": realtime_session()},
        item(id="i1", **user),
        item(**call),
        item(type="function_call_output", call_id="c", output="1"),
        item(
            type="message",
            role="assistant",
            content=[{"type": "output_text", "text": "Hello."}],
        ),
        {"type": "response.create", "response": response},
        {"type": "response.create", "response": {"output_modalities": ["text"]}},
        {"type": "input_audio_buffer.append", "audio": AUDIO},
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.clear"},
        {"type": "conversation.item.retrieve", "item_id": "i1"},
        {
            "type": "conversation.item.truncate",
            "item_id": "i1",
            "content_index": 0,
            "audio_end_ms": 10,
        },
        {"type": "conversation.item.delete", "item_id": "i1"},
        {"type": "response.cancel", "response_id": "resp_1"},
    ]


def _twilio(_: Ids) -> list[Any]:
    return [
        {
            "event": "start",
            "start": {
                "streamSid": "MZ1",
                "customParameters": {"voice": "alloy", "instructions": "a", "save_chat": "false"},
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            },
        },
        {"event": "media", "media": {"payload": AUDIO, "track": "inbound"}},
        {"event": "mark", "mark": {"name": "item_1/20"}},
        {"event": "dtmf", "dtmf": {"digit": "1"}},
    ]


def _speak(_: Ids) -> list[Any]:
    return [{"type": "Speak", "text": "Hello there."}, {"type": "Flush"}, {"type": "Clear"}]


def _turns(_: Ids) -> list[Any]:
    return [
        {"type": "Speak", "text": "Hello there. "},
        {"type": "Configure", "speed": 1.1},
        {"type": "Interrupt", "playback_offset": {"type": "time_ms", "value": 100}},
        {"type": "Flush"},
    ]


def _listen(_: Ids) -> list[Any]:
    configure = {"type": "Configure", "keyterms": ["Ann"], "features": {"numerals": True}}
    return [{"type": "KeepAlive"}, {"type": "Finalize", "channel": 0}, configure]


def _flux(_: Ids) -> list[Any]:
    return [
        {
            "type": "Configure",
            "thresholds": {"eot_threshold": 0.7, "eager_eot_threshold": 0.4, "eot_timeout_ms": 900},
            "keyterms": ["Ann"],
            "language_hints": ["en"],
            "numerals": True,
        },
        {"type": "ForceEndTurn"},
        {"type": "KeepAlive"},
    ]


def _assembly(_: Ids) -> list[Any]:
    return [
        {
            "type": "UpdateConfiguration",
            "end_of_turn_confidence_threshold": 0.5,
            "min_turn_silence": 400,
            "max_turn_silence": 1200,
            "keyterms_prompt": ["Ann"],
            "format_turns": True,
        },
        {"type": "ForceEndpoint"},
        {"type": "KeepAlive"},
    ]


def _live(_: Ids) -> list[Any]:
    return [{"message_type": "input_audio_chunk", "audio_base_64": AUDIO, "commit": True}]


def _first(messages: Callable[[Ids], list[Any]], **changed: Any) -> Callable[[Ids], list[Any]]:
    """The first of the messages, by which others have a context `a`."""

    def begin(ids: Ids) -> list[Any]:
        (one, *_) = messages(ids)
        return [{**one, **changed}]

    return begin


def _tts_context(ids: Ids) -> list[Any]:
    return [{"create_context": {"context_id": "a", "voice_id": ids["speaking_voice"]}}]


def _none(_: Ids) -> list[Any]:
    return []


def _responses(_: Ids) -> list[Any]:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ARGUMENTS}
    result = {"type": "function_call_output", "call_id": "c", "output": "1"}
    body = {"model": "svc/echo", "store": False, "max_output_tokens": 20, "stream_id": "a"}
    return [
        {"type": "response.create", **body, "input": [{"role": "user", "content": "Hi"}]},
        {"type": "response.create", **body, "input": [call, result], "metadata": {"a": "b"}},
        {"type": "response.cancel", "response_id": "resp_1"},
    ]


def _ink(_: Ids) -> list[Any]:
    return ["finalize", {"type": "finalize"}]


INK = (("model", "ink-2"), ("encoding", "pcm_s16le"), ("sample_rate", "16000"))
LINEAR = (("encoding", "linear16"), ("sample_rate", "16000"))
PROTOCOLS = [
    Protocol("/ws/tts", _tts_context, _contexts),
    Protocol("/tts/v1/voice:streamBidirectional", _first(_inworld, contextId="a"), _inworld),
    Protocol("/cartesia/tts/websocket", _first(_cartesia), _cartesia),
    Protocol("/v1/text-to-speech/{voice_id}/stream-input", _first(_elevenlabs), _elevenlabs),
    Protocol("/v1/text-to-speech/{voice_id}/multi-stream-input", _first(_elevenlabs), _elevenlabs),
    Protocol("/v1/text-to-dialogue/multi-stream-input", _first(_dialogue), _dialogue),
    Protocol("/v1/speak", _none, _speak, LINEAR),
    Protocol("/v2/speak", _none, _turns, (("model", "flux-alexis-en"), *LINEAR)),
    Protocol("/ws/stt", _first(_stt), _stt),
    Protocol("/v1/listen", _none, _listen, LINEAR),
    Protocol("/v2/listen", _none, _flux, (("model", "flux-general-en"), *LINEAR)),
    Protocol("/v3/ws", _none, _assembly, (("sample_rate", "16000"),)),
    Protocol("/v1/speech-to-text/realtime", _none, _live, (("model_id", "scribe_v2_realtime"),)),
    Protocol("/cartesia/stt/websocket", _none, _ink, INK),
    Protocol("/stt/websocket", _none, _ink, INK),
    Protocol("/cartesia/stt/turns/websocket", _none, _ink, INK),
    Protocol("/openai/v1/realtime", _none, _realtime, (("model", "gpt-realtime"),)),
    Protocol("/openai/v1/responses", _none, _responses),
    Protocol("/telephony/twilio/{key}", _first(_twilio), _twilio),
]
WEIGHTS = [4 if "realtime" in one.path or one.path == "/ws/tts" else 2 for one in PROTOCOLS]


def socket_paths() -> set[str]:
    """The sockets of the application, but for one that takes every other path."""
    routes = (route for route in routed_app().router.routes if "WebSocket" in type(route).__name__)
    return {str(getattr(route, "path", "")) for route in routes} - {"/{path:path}"}


class Socket:
    """A client of the application in process."""

    def __init__(self, app: FastAPI, path: str, query: list[tuple[str, str]], key: str) -> None:
        scope: dict[str, Any] = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query).encode(),
            "headers": [(b"host", b"test"), (b"authorization", f"Bearer {key}".encode())],
            "client": ("127.0.0.1", 5),
            "server": ("test", 80),
            "subprotocols": [],
            "state": {},
            "extensions": {"websocket.http.response": {}},
        }
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task = asyncio.ensure_future(app(scope, self._inbox.get, self.sent.put))  # type: ignore[arg-type]
        self._inbox.put_nowait({"type": "websocket.connect"})
        self.close_code: int | None = None
        self.refused = ""
        self.events: list[str] = []

    @property
    def is_over(self) -> bool:
        return self.close_code is not None or self._task.done()

    def send(self, message: str | bytes) -> None:
        kind = "text" if isinstance(message, str) else "bytes"
        self._inbox.put_nowait({"type": "websocket.receive", kind: message})

    async def listen(self, quiet_s: float = QUIET_S) -> None:
        """Reads events until none comes for so long."""
        while not self.is_over:
            try:
                async with asyncio.timeout(quiet_s):
                    event = await self.sent.get()
            except TimeoutError:
                return
            if event["type"] == "websocket.close":
                self.close_code = event.get("code", 1000)
            elif event["type"] == "websocket.http.response.start":
                self.refused = str(event["status"])
            elif event["type"] == "websocket.send":
                self.events.append(str(event.get("text") or "")[:5000])

    async def leave(self) -> None:
        """Disconnects, and waits for the session's end."""
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
        async with asyncio.timeout(ANSWERED_S):
            await asyncio.wait([self._task])


class Sessions:
    """Opens sessions on one site, and remembers what was wrong with them."""

    def __init__(self, site: Site, chance: Random) -> None:
        self._site = site
        self._chance = chance
        self.complaints: list[str] = []

    async def open_one(self) -> int:
        """One session; returns how many messages were broken."""
        chance, ids = self._chance, self._site.ids
        protocol = chance.choices(PROTOCOLS, WEIGHTS)[0]
        path = protocol.path.format(voice_id=ids["speaking_voice"], key=self._site.key)
        query = list(protocol.query)
        sent: list[Any] = []
        if chance.random() < 0.1:
            broken = break_one(dict(query), chance).value
            query = [(str(name), str(value)[:1000]) for name, value in broken.items()]
            query = [
                (a.encode(errors="replace").decode(), b.encode(errors="replace").decode())
                for a, b in query
            ]
        socket = Socket(self._site.app, path, query, self._site.key)
        await socket.listen()
        for message in protocol.begins(ids) if chance.random() < 0.9 else []:
            socket.send(json.dumps(message))
        count = 0
        for _ in range(MESSAGES):
            message = chance.choice(protocol.messages(ids))
            if chance.random() < 0.15:
                socket.send(json.dumps(message))
            else:
                broken_message = break_one(message, chance)
                sent.append(broken_message.value)
                socket.send(broken_message.text)
                count += 1
            if chance.random() < 0.05:
                socket.send(chance.randbytes(chance.choice([0, 1, 100, 3200])))
            if chance.random() < 0.3:
                await socket.listen(0.01)
            if socket.is_over:
                break
        await socket.listen()
        label = f"{path} {query} {shown(sent)}"
        try:
            await socket.leave()
        except TimeoutError:
            self.complaints.append(f"{label}\n  does not end")
        if socket.close_code == 1011 or socket.refused.startswith("5"):
            self.complaints.append(
                f"{label}\n  {socket.close_code} {socket.refused} {socket.events[-1:]}"
            )
        internal = [one for one in socket.events if "internal" in one or "service failed" in one]
        if internal:
            self.complaints.append(f"{label}\n  {internal[:2]}")
        while self._site.failures.messages:
            self.complaints.append(f"{label}\n  logged {self._site.failures.messages.pop()}")
        return count
