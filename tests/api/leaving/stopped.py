"""A gateway that stops in the middle of its work, and what each of its clients got."""

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx
from sqlmodel import Session, col, select
from websockets.exceptions import ConnectionClosed

from db.billing.tables import CreditHold, LedgerEntry
from db.database import make_engine
from deployments.gateway.handles import StopSignal
from deployments.gateway.replica import Gateway
from models.audio import AudioChunk
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from pipelines.tasks import TaskSet
from tests.api.leaving.conftest import LeavingSite
from tests.api.leaving.work import SOCKETS, Begin, Work, filled, speech_file
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.engines.counted import Steps
from tests.local_ports import LocalChatModel, LocalSTTModel, LocalTTSModel
from tests.patience import PATIENCE_S, until

T = TypeVar("T")

RATE = 24_000  # Hz, of all speech here
TEXTS = ("application/json", "application/x-ndjson", "text/event-stream")
AUDIO_FIELDS = ("audioContent", "audio_base64", "audio", "data", "delta")
LIVE = {path: begin for path, (_, begin, service) in SOCKETS.items() if service == "stt"}


class QuickStop(StopSignal):
    """Ends the recogniser's calls, too, whose threads other calls wait for."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def set(self) -> None:
        super().set()
        self._steps.slowness = 0.0


async def until_stop(stop: StopSignal, items: AsyncGenerator[T, None]) -> AsyncIterator[T]:
    end: Any = object()
    async with aclosing(items):
        while (item := await stop.wait(anext(items, end))) is not end:
            yield item


class StoppableTTS(LocalTTSModel):
    """As the handle of a replica, which the stop of its gateway ends; so are the others."""

    stop: StopSignal

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async for chunk in until_stop(self.stop, super().synthesize(request)):
            yield chunk


class StoppableSTT(LocalSTTModel):
    stop: StopSignal

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        return await self.stop.wait(super().transcribe(request))


class StoppableChat(LocalChatModel):
    stop: StopSignal

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        async for delta in until_stop(self.stop, super().generate(request)):
            yield delta


@dataclass
class Client:
    """What one client got, by an API key of its own."""

    path: str
    key_id: int
    status: int = 101
    is_audio: bool = False  # the body, which is no text
    received: list[str | bytes] = field(default_factory=list)

    @property
    def messages(self) -> list[Any]:
        """Those of a socket, lines or events."""
        pieces = [piece for piece in self.received if isinstance(piece, str)]
        lines = "\n".join(pieces).splitlines()
        if self.status != 101 and not self.is_audio:
            lines = b"".join(self._bytes).decode().splitlines()
        data = [line.removeprefix("data: ") for line in lines]
        return [json.loads(line) for line in data if line.startswith("{")]

    @property
    def speech_s(self) -> float:
        in_frames = self.status == 101 or self.is_audio
        size = sum(map(len, self._bytes)) if in_frames else 0
        return (size + sum(map(audio_bytes, self.messages))) / 2 / RATE

    @property
    def _bytes(self) -> list[bytes]:
        return [piece for piece in self.received if isinstance(piece, bytes)]


def audio_bytes(value: Any) -> int:
    """The bytes of audio in a message of any dialect."""
    if isinstance(value, list):
        return sum(map(audio_bytes, value))
    if not isinstance(value, dict):
        return 0
    found = 0
    for name, part in value.items():
        is_audio = isinstance(part, str) and name in AUDIO_FIELDS
        found += len(b64decode(part)) if is_audio else audio_bytes(part)
    return found


def words(value: Any) -> int:
    """Those of the deltas of an answer in a message of any dialect."""
    if "choices" in value:
        deltas = [
            choice.get("delta", {"content": choice.get("text")}) for choice in value["choices"]
        ]
        parts = [delta.get("content") or "" for delta in deltas]
        return len(" ".join(parts).split())
    return len(value["delta"].split()) if value.get("type", "").endswith("text.delta") else 0


@dataclass
class StoppedSite:
    """A gateway, and the clients whose work it cuts."""

    server: SocketServer
    stop: StopSignal
    steps: Steps
    site: LeavingSite
    clients: list[Client] = field(default_factory=list)

    async def request(self, path: str, work: Work) -> None:
        key, client = await self.client(path)
        voice, headers = self.server.voice_id, {"Authorization": f"Bearer {key}", **work.headers}
        path = path.partition("#")[0].replace("{voice_id}", voice)
        body = filled(work.json, voice)
        async with httpx.AsyncClient(timeout=2 * PATIENCE_S, trust_env=False) as http:
            asked = http.stream(
                "POST",
                f"http://{self.server.address}{path}",
                headers=headers,
                json=body,
                data=work.data,
                files=None if work.file is None else {work.file: ("a.wav", speech_file())},
                content=None if work.content is None else work.content(),
            )
            try:
                async with asked as answer:
                    client.status = answer.status_code
                    client.is_audio = not answer.headers["content-type"].startswith(TEXTS)
                    async for piece in answer.aiter_raw():
                        client.received.append(piece)
            except httpx.RemoteProtocolError:  # the format has no error
                assert client.is_audio, path

    async def session(self, path: str, begin: Begin) -> None:
        key, client = await self.client(path)
        url = SOCKETS[path][0] if path in LIVE else path
        voice = self.server.voice_id
        address = f"ws://{self.server.address}{url.replace('{voice}', voice)}"
        headers = {"Authorization": f"Bearer {key}"}
        async with connect(address, additional_headers=headers, max_queue=None) as session:
            await begin(session, voice)
            try:
                while True:
                    client.received.append(await session.recv())
            except ConnectionClosed as closed:
                codes = (1000, 1001) if path in LIVE else (1001,)  # one has sent all of its audio
                assert closed.rcvd is not None and closed.rcvd.code in codes, (path, closed)

    async def client(self, path: str) -> tuple[str, Client]:
        headers = {"Authorization": f"Bearer {self.server.key}"}
        url = f"http://{self.server.address}/developer/api"
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
            key: str = (await http.post(url, json={"name": path})).json()["key"]
        accounts = self.server.services.platform.accounts
        key_id = (await accounts.authenticator.authenticate(key)).key_id
        assert key_id is not None
        self.clients.append(Client(path, key_id))
        return key, self.clients[-1]

    async def until_each(self, condition: Callable[[Client], bool]) -> None:
        """Waits for each client: a count of all steps tells nothing of the one that is behind."""
        for client in self.clients:
            await until(partial(condition, client))

    async def end(self) -> dict[int, dict[str, int]]:
        """Stops the gateway as Serve does; what each key was charged, by service."""
        gateway = SimpleNamespace(
            services=self.server.services,
            _directory=SimpleNamespace(stop=self.stop),
            _listener=self.server.listener,
            _background=TaskSet(),
        )
        stop: Any = Gateway.__del__
        await stop(gateway)
        engine = make_engine(self.server.services.infrastructure.settings.database_url)
        charged: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        with Session(engine) as session:
            assert not session.exec(select(CreditHold)).all()
            query = select(LedgerEntry).where(col(LedgerEntry.kind) == "capture")
            for entry in session.exec(query):
                charged[entry.key_id][entry.service] += entry.units
        engine.dispose()
        return {key_id: dict(services) for key_id, services in charged.items()}
