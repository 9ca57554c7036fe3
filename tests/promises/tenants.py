"""Clients that use all services concurrently and record the state that the answers imply."""

import asyncio
import base64
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
from websockets.exceptions import WebSocketException

from tests.deployments.gateway.socket_client import speaking
from tests.pipelines.webhooks.receivers import Receiver

SUBSCRIBED = ["tts.completed", "tts.failed", "stt.completed", "stt.failed"]
Answer = httpx.Response | None  # None: the connection failed, and the outcome is unknown


@dataclass
class ExpectedState:
    """The state that one tenant's answers imply; the database must agree with it."""

    email: str = ""
    workspace_id: int = 0
    user_id: int = 0
    accounts: dict[int, str] = field(default_factory=dict)  # others that it created: id and address
    keys: set[int] = field(default_factory=set)  # created and not deleted
    deleted_keys: set[int] = field(default_factory=set)
    hook: str = ""  # the webhook of the events of speech and transcripts
    webhooks: set[str] = field(default_factory=set)  # others
    chats: set[str] = field(default_factory=set)
    plan: str | None = None
    doubtful_plans: set[str] = field(default_factory=set)
    completed: Counter[str] = field(default_factory=Counter)  # by service
    doubtful: Counter[str] = field(default_factory=Counter)
    charged: Counter[str] = field(default_factory=Counter)  # micro-USD that answers imply
    once: dict[str, int] = field(default_factory=dict)  # idempotency keys: 200s that were seen
    statuses: Counter[int] = field(default_factory=Counter)


class Tenant:
    """One workspace and its client."""

    def __init__(self, url: str, number: int, hook: Receiver) -> None:
        self.state = ExpectedState(email=f"tenant-{number}-{uuid4().hex[:6]}@example.com")
        self.hook = hook
        self._url = url
        self._token = self._voice_id = ""
        self._random = random.Random(number)
        # Each from an address of its own, since sign-ups are limited for each address.
        address = f"10.{self._random.randrange(256)}.{uuid4().bytes[0]}.{number}"
        self._http = httpx.AsyncClient(
            base_url=url, timeout=20, headers={"X-Forwarded-For": address}
        )
        self._audio = b""
        self._count = itertools.count()

    async def sign_up(self) -> None:
        answer = await self._http.post(
            "/auth/signup", json={"email": self.state.email, "password": "a long password"}
        )
        assert answer.status_code == 201, answer.text
        self.state.user_id = int(answer.json()["user"]["id"])
        self._token = answer.json()["token"]
        self._http.headers["Authorization"] = f"Bearer {self._token}"
        hook = {"url": self.hook.url, "events": SUBSCRIBED}
        registered = await self._request("POST", "/webhooks", json=hook)
        assert registered is not None and registered.status_code == 201, registered
        self.state.hook = registered.json()["id"]
        body = {"text": "A first sentence.", "output_format": "flac"}
        spoken = await self._request("POST", "/tts-synthesize", json=body)
        assert spoken is not None and spoken.status_code == 200, spoken
        self._completed("tts", body["text"])
        self._audio = base64.b64decode(spoken.json()["audio_base64"])
        voices = await self._request("GET", "/default-voices")
        assert voices is not None and voices.status_code == 200, voices
        self._voice_id = voices.json()["data"][0]["voice_id"]

    async def work(self, until: float, pause_s: float) -> None:
        """Random requests, one after another, until that monotonic time."""
        actions = [
            self._speak,
            self._speak_once,
            self._stream,
            self._speak_live,
            self._transcribe,
            self._chat,
            self._make_account,
            self._make_key,
            self._delete_key,
            self._make_webhook,
            self._subscribe,
        ]
        while time.monotonic() < until:
            await self._random.choice(actions)()
            await asyncio.sleep(self._random.expovariate(1 / pause_s))

    def move(self, url: str) -> None:
        """Sends its next requests there."""
        self._url, self._http.base_url = url, httpx.URL(url)

    async def close(self) -> None:
        await self._http.aclose()

    async def _request(self, method: str, path: str, **options: Any) -> Answer:
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.HTTPError:
            return None
        self.state.statuses[answer.status_code] += 1
        return answer

    def _note(self, service: str, answer: Answer, text: str = "") -> bool:
        """Records an answer; returns whether it was a success."""
        if answer is None:
            self.state.doubtful[service] += 1
        elif answer.status_code == 200:
            self._completed(service, text)
            return True
        return False

    def _completed(self, service: str, text: str) -> None:
        self.state.completed[service] += 1
        self.state.charged[service] += 15 * len(text)

    async def _speak(self) -> None:
        text = f"This is sentence number {next(self._count)}."
        self._note("tts", await self._request("POST", "/tts-synthesize", json={"text": text}), text)

    async def _speak_once(self) -> None:
        """Retries with the same idempotency key until there is an answer."""
        key, text = uuid4().hex, f"Only once, number {next(self._count)}."
        self.state.once[key] = 0
        for _ in range(8):
            answer = await self._request(
                "POST", "/tts-synthesize", json={"text": text}, headers={"Idempotency-Key": key}
            )
            if answer is not None and answer.status_code == 200:
                self.state.once[key] += 1
                self._completed("tts", text)
                break
            await asyncio.sleep(0.5)
        else:
            self.state.doubtful["tts"] += 1
            return
        again = await self._request(
            "POST", "/tts-synthesize", json={"text": text}, headers={"Idempotency-Key": key}
        )
        if again is not None and again.status_code == 200:
            assert again.headers.get("Idempotency-Replayed") == "true"
            assert again.json() == answer.json()

    async def _stream(self) -> None:
        text = f"A stream of words, number {next(self._count)}. And one more sentence."
        answer = await self._request("POST", "/tts-stream", json={"text": text})
        if answer is not None and answer.status_code == 200:
            last = answer.text.strip().splitlines()[-1]
            if '"complete"' not in last:  # an error in the middle: the sent audio is charged
                self.state.doubtful["tts"] += 1
                return
        self._note("tts", answer, text)

    async def _speak_live(self) -> None:
        """One flush on a socket of its own."""
        text = f"Spoken live, number {next(self._count)}."
        flushed = False
        try:
            async with speaking(self._url, self._token, self._voice_id) as client:
                flushed = True
                await client.send(send_text={"text": text})
                await client.send(flush_context={})
                said = await client.until("flush_completed", "error")
        except (OSError, WebSocketException):  # a timeout is an OSError
            self.state.doubtful["tts"] += flushed
            return
        if "flush_completed" in said:
            self._completed("tts", text)
        elif said["error"]["context_id"] is None:  # the session ended: the sent audio is charged
            self.state.doubtful["tts"] += 1

    async def _transcribe(self) -> None:
        answer = await self._request("POST", "/stt", files={"audio": ("a.flac", self._audio)})
        self._note("stt", answer)

    async def _chat(self) -> None:
        body = {
            "messages": [{"role": "user", "content": f"number {next(self._count)}"}],
            "stream": False,
        }
        answer = await self._request("POST", "/v1/chat/completions", json=body)
        if self._note("chat", answer) and answer is not None:
            self.state.chats.add(answer.json()["chat_id"])
            self.state.charged["chat"] += 20 * answer.json()["usage"]["total_tokens"]

    async def _make_account(self) -> None:
        email = f"another-{uuid4().hex}@example.com"
        body = {"email": email, "password": "a long password"}
        answer = await self._request("POST", "/auth/signup", json=body)
        if answer is not None and answer.status_code == 201:
            self.state.accounts[int(answer.json()["user"]["id"])] = email

    async def _make_key(self) -> None:
        answer = await self._request("POST", "/developer/api", json={"name": "one more"})
        if answer is not None and answer.status_code == 201:
            self.state.keys.add(int(answer.json()["id"]))

    async def _delete_key(self) -> None:
        if not self.state.keys:
            return
        key = self.state.keys.pop()  # whatever the answer: without one, the outcome is unknown
        answer = await self._request("DELETE", f"/developer/api/{key}")
        if answer is not None and answer.status_code == 200:
            self.state.deleted_keys.add(key)
        elif answer is not None and answer.status_code != 404:
            self.state.keys.add(key)

    async def _make_webhook(self) -> None:
        if len(self.state.webhooks) >= 3:
            return
        body = {"url": "https://hooks.example.com/in", "events": ["voice.ready"]}
        answer = await self._request("POST", "/webhooks", json=body)
        if answer is not None and answer.status_code == 201:
            self.state.webhooks.add(answer.json()["id"])

    async def _subscribe(self) -> None:
        plan = self._random.choice(["pro", "enterprise"])
        answer = await self._request("POST", "/billing/subscribe", json={"plan_id": plan})
        if answer is None or answer.status_code >= 500:
            self.state.doubtful_plans.add(plan)
        elif answer.status_code == 201:
            self.state.plan = plan
            self.state.doubtful_plans.clear()
