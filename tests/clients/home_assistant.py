"""Home Assistant itself, of any release, as a program of its own that is used over its web API."""

import itertools
import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx
from websockets.sync.client import connect

from tests.servers import free_port

STREAMING = (2025, 7)  # the release that speaks answers of agents while they are generated
START_S = 600.0  # the first start of an installation fetches packages
ANSWER_S = 60.0
PIECE = 1024 * 2  # bytes of audio in a message of an assistant's microphone
STREAMED = (
    "The first sentence of this answer is long enough to be spoken at once. "
    "The second one follows. And this is the last"
)
"""What the agent `conversation.streamed` answers, in pieces; without a full stop."""
_CONFIGURATION = """
http: {{server_host: 127.0.0.1, server_port: {port}}}
assist_pipeline:
media_source:
zeroconf:
{more}
logger: {{default: warning, logs: {{homeassistant.components.wyoming: debug}}}}
"""
_AGENT = """
import asyncio
from homeassistant.components import conversation
from homeassistant.components.conversation.const import DATA_COMPONENT

async def async_setup(hass, config):
    await hass.data[DATA_COMPONENT].async_add_entities([Streamed()])
    return True

class Streamed(conversation.ConversationEntity):
    entity_id = "conversation.streamed"
    _attr_name = _attr_unique_id = "streamed"
    supported_languages = "*"

    async def _async_handle_message(self, user_input, chat_log):
        async def deltas():
            yield {"role": "assistant"}
            for start in range(0, len(TEXT), 7):
                yield {"content": TEXT[start : start + 7]}
                await asyncio.sleep(0.05)

        async for _ in chat_log.async_add_delta_content_stream(user_input.agent_id, deltas()):
            pass
        return conversation.async_get_result_from_chat_log(user_input, chat_log)
"""
_MANIFEST = {
    "domain": "streamed",
    "name": "streamed",
    "version": "1.0.0",
    "dependencies": ["conversation"],
    "documentation": "https://localhost",
    "codeowners": [],
    "requirements": [],
}


class HomeAssistant:
    """A new installation with one user, for a `with` block."""

    def __init__(self, command: str, folder: Path) -> None:
        """`command` starts its program `hass`. It has the agent of STREAMED if it `streams`."""
        version = subprocess.check_output([*shlex.split(command), "--version"], text=True)
        self.streams = tuple(map(int, version.split(".")[:2])) >= STREAMING
        port = free_port()
        more = "streamed:" if self.streams else ""
        (folder / "configuration.yaml").write_text(_CONFIGURATION.format(port=port, more=more))
        if self.streams:
            agent = folder / "custom_components" / "streamed"
            agent.mkdir(parents=True)
            (agent / "__init__.py").write_text(f"TEXT = {STREAMED!r}\n{_AGENT}")
            (agent / "manifest.json").write_text(json.dumps(_MANIFEST))
        self._log = folder / "log.txt"
        self._command = [*shlex.split(command), "-c", str(folder)]
        self._ids = itertools.count(1)
        self._url = f"http://127.0.0.1:{port}"
        self._http = httpx.Client(base_url=self._url, timeout=ANSWER_S)

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            log = opened.enter_context(self._log.open("w"))
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
            opened.callback(self._stop)
            opened.enter_context(self._http)
            token = self._begin()
            self._socket = opened.enter_context(connect(f"ws{self._url[4:]}/api/websocket"))
            self._socket.recv(ANSWER_S)
            self._socket.send(json.dumps({"type": "auth", "access_token": token}))
            assert json.loads(self._socket.recv(ANSWER_S))["type"] == "auth_ok"
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _begin(self) -> str:
        """Waits until it answers, and makes the user; its token."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                if self._http.get("/api/onboarding").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Home Assistant did not start:\n{self.log()}")
            time.sleep(0.5)
        client = {"client_id": f"{self._url}/"}
        user = {"name": "me", "username": "me", "password": "a password", "language": "en"}
        code = self.post("/api/onboarding/users", client | user)["auth_code"]
        asked = {"grant_type": "authorization_code", "code": code, **client}
        answer = self._http.post("/auth/token", data=asked).raise_for_status().json()
        self._http.headers["Authorization"] = f"Bearer {answer['access_token']}"
        return str(answer["access_token"])

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> Any:
        return self._http.get(path).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        response = self._http.post(path, json=body)
        assert response.status_code < 300, (response.status_code, response.text, self.log())
        return response.json()

    def ask(self, kind: str, **fields: Any) -> Any:
        """The result of a command of its socket."""
        return self._result(self._send(kind, **fields))

    def _send(self, kind: str, **fields: Any) -> int:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "type": kind, **fields}))
        return number

    def _receive(self, number: int) -> Any:
        while True:
            message = json.loads(self._socket.recv(ANSWER_S))
            if message["id"] == number:
                return message

    def _result(self, number: int) -> Any:
        message = self._receive(number)
        assert message["success"], message
        return message["result"]

    def add(self, host: str, port: int) -> dict[str, Any]:
        """Adds the integration as its dialogue does; the result of the last step."""
        flows = "/api/config/config_entries/flow"
        form = self.post(flows, {"handler": "wyoming", "show_advanced_options": False})
        added: dict[str, Any] = self.post(
            f"{flows}/{form['flow_id']}", {"host": host, "port": port}
        )
        return added

    def entities(self) -> set[str]:
        """The ids of those that services of speech and chat have."""
        kinds = ("stt.", "tts.", "conversation.")
        states = self.get("/api/states")
        return {one["entity_id"] for one in states if one["entity_id"].startswith(kinds)}

    def transcribe(self, entity: str, pcm: bytes, language: str) -> dict[str, Any]:
        """`pcm` has 16 kHz, 16 bits and one channel."""
        about = "format=wav; codec=pcm; sample_rate=16000; bit_rate=16; channel=1"
        response = self._http.post(
            f"/api/stt/{entity}",
            content=pcm,
            headers={"X-Speech-Content": f"{about}; language={language}"},
        )
        heard: dict[str, Any] = response.raise_for_status().json()
        return heard

    def speak(self, entity: str, text: str, **more: Any) -> bytes:
        """A file, by default MP3."""
        asked = {"engine_id": entity, "message": text, "cache": False, **more}
        return self.fetch(self.post("/api/tts_get_url", asked)["path"])

    def fetch(self, path: str) -> bytes:
        response = self._http.get(path)
        assert response.status_code == 200, (response.status_code, response.text, self.log())
        return response.content

    def say(self, agent: str, text: str, conversation: str | None = None) -> dict[str, Any]:
        asked = {"text": text, "agent_id": agent, "language": "en"}
        more = {"conversation_id": conversation} if conversation else {}
        said: dict[str, Any] = self.post("/api/conversation/process", asked | more)
        return said

    def assist(self, pcm: bytes, **engines: str) -> dict[str, Any]:
        """What each stage of an assistant gives for a spoken command; `audio` is its answer."""
        names = ("conversation", "stt", "tts")
        languages = {f"{name}_language": "en" for name in names}
        unused = {"tts_voice": None, "wake_word_entity": None, "wake_word_id": None}
        asked = {f"{name}_engine": engines[name] for name in names} | languages | unused
        pipeline = self.ask("assist_pipeline/pipeline/create", name="mine", language="en", **asked)
        number = self._send(
            "assist_pipeline/run",
            start_stage="stt",
            end_stage="tts",
            pipeline=pipeline["id"],
            input={"sample_rate": 16_000},
        )
        self._result(number)
        seen: dict[str, Any] = {}
        for event in self._events(number):
            seen[event["type"]] = event["data"]
            if event["type"] == "stt-start":
                handler = bytes([seen["run-start"]["runner_data"]["stt_binary_handler_id"]])
                for start in range(0, len(pcm), PIECE):
                    self._socket.send(handler + pcm[start : start + PIECE])
                    time.sleep(0.01)
                self._socket.send(handler)
            elif event["type"] == "tts-end":
                seen["audio"] = self.fetch(event["data"]["tts_output"]["url"])
        return seen

    def _events(self, number: int) -> Iterator[dict[str, Any]]:
        """Of a run of an assistant, until its end."""
        while True:
            event = self._receive(number)["event"]
            yield event
            if event["type"] == "run-end":
                return
