"""What the kernel does for every protocol: clocks, floods, keys, slow and vanished clients."""

import asyncio
import contextlib
import gc
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from db.database import Database
from db.errors import DatabaseError
from deployments.gateway import connections
from pipelines.accounts import authentication
from pipelines.accounts.service import Accounts
from pipelines.errors import Unauthorized
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_handshake import new_key
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


def limit(server: SocketServer, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    sockets = server.services.infrastructure.sockets
    monkeypatch.setattr(sockets, "limits", sockets.limits.model_copy(update=limits))


async def ending(client: TtsClient) -> tuple[str, int]:
    """The text of the last event, which is an error, and the close code."""
    events, code = await client.rest()
    return events[-1]["error"]["message"], code


async def test_a_client_that_says_nothing_is_told_and_closed(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, idle_s=1.5)
    async with shared_server.tts() as client:
        await client.create()
        for _ in range(4):  # who speaks or listens is not idle
            await asyncio.sleep(0.4)
            await client.say("send_text", text="x")
        assert await ending(client) == ("no message came for 1.5 seconds", 1008)


async def test_a_session_has_a_longest_time(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, session_s=0.3)
    async with shared_server.tts() as client:
        assert await ending(client) == ("the session has lasted 0.3 seconds", 4408)


async def test_a_flood_of_messages_ends_the_session(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, messages_per_s=20)
    async with shared_server.tts() as client:
        await client.create()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(500):
                await client.say("send_text", text="")
        assert await ending(client) == ("too many messages", 1008)


async def test_a_failure_of_the_service_is_told_and_closed(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.sockets.tts.conversation.parse_message", lambda _: 1 / 0)
    async with shared_server.tts() as client:
        await client.say("flush_context")
        assert await ending(client) == ("the service failed; the session ends", 1011)
    await shared_server.until_empty()


@pytest.mark.parametrize(
    ("frame", "code"), [("x" * (1 << 20) + "x", 1009), (b"\xff\xfe", 1007)], ids=["large", "utf-8"]
)
async def test_the_server_closes_on_frames_that_it_cannot_take(
    shared_server: SocketServer, frame: str | bytes, code: int
) -> None:
    async with shared_server.tts() as client:
        await client.socket.send(frame, text=True)
        with pytest.raises(ConnectionClosed):
            await client.hear()
        assert client.socket.close_code == code
    await shared_server.until_empty()


async def test_a_revoked_key_ends_its_sessions_and_no_others_within_5_s(
    shared_server: SocketServer,
) -> None:
    services = shared_server.services
    recheck_s = services.infrastructure.sockets.limits.recheck_s
    assert recheck_s + authentication.CACHE_TTL_S < 5
    elsewhere = Database(services.infrastructure.settings.database_url)  # as another gateway has it
    try:
        accounts = Accounts(
            elsewhere, services.infrastructure.settings.secrets, services.platform.plans
        )
        key_id, key = await new_key(shared_server, ["tts"])
        principal = await accounts.authenticator.authenticate(shared_server.key)
        async with shared_server.tts() as other, connect(shared_server.url("/ws/tts", key)) as one:
            client = TtsClient(one, shared_server.voice_id)
            await accounts.delete_key(principal, key_id)
            async with asyncio.timeout(PATIENCE_S):
                message, code = await ending(client)
            assert message == "the API key was revoked or has expired" and code == 4401
            await other.create()  # lives on
    finally:
        elsewhere.close()


async def test_a_revoked_key_ends_a_session_that_has_much_to_send(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, send_timeout_s=2 * PATIENCE_S)
    accounts = shared_server.services.platform.accounts
    key_id, key = await new_key(shared_server, ["tts"])
    principal = await accounts.authenticator.authenticate(shared_server.key)
    async with connect(shared_server.url("/ws/tts", key), max_queue=1) as socket:
        client = TtsClient(socket, shared_server.voice_id)
        await client.hear()
        await client.hear()
        await client.create(audio_config={"sample_rate_hertz": 48_000})
        await client.say("send_text", text="Nobody listens to this sentence at all. " * 100)
        await client.say("flush_context")
        (session,) = shared_server.services.infrastructure.sockets.live
        await until(lambda: session.waiting_bytes > 500_000)
        await accounts.delete_key(principal, key_id)
        await until(lambda: session.waiting_bytes < 1000)
        message, code = await ending(client)
        assert message == "the API key was revoked or has expired" and code == 4401


async def test_keys_are_asked_for_again_after_a_failure(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = shared_server.services.platform.accounts
    limit(shared_server, monkeypatch, recheck_s=0.05)
    async with shared_server.tts() as client:
        answers = iter([ValueError("unforeseen"), DatabaseError("down"), Unauthorized("revoked")])

        async def recheck(credential: str) -> None:
            raise next(answers)

        with monkeypatch.context() as patched:
            patched.setattr(accounts.authenticator, "recheck", recheck)
            assert (await ending(client))[1] == 4401
    assert [record.message for record in caplog.records] == ["keys_not_rechecked"] * 2


async def test_a_reader_that_stalls_slows_the_work_and_then_loses_its_session(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, send_timeout_s=1.0, outbox_bytes=200_000)
    url = shared_server.url("/ws/tts")
    async with connect(url, max_queue=1, close_timeout=0.2) as socket:
        client = TtsClient(socket, shared_server.voice_id)
        await client.hear()
        await client.hear()
        config = {"audio_encoding": "LINEAR16", "sample_rate_hertz": 48_000}
        await client.create(audio_config=config)
        await client.say("send_text", text="Nobody listens to this sentence at all. " * 100)
        await client.say("flush_context")
        (session,) = shared_server.services.infrastructure.sockets.live
        fullest = 0
        async with asyncio.timeout(PATIENCE_S):
            while not session.ended:
                await asyncio.sleep(0.05)
                fullest = max(fullest, session.waiting_bytes)
        assert 200_000 < fullest < 400_000
        await shared_server.until_empty()
        assert session.close_code == 1006
        await until(lambda: not shared_server.listener._server.server_state.connections)


async def test_100_clients_that_vanish_leave_nothing_behind(shared_server: SocketServer) -> None:
    async with shared_server.tts():
        pass  # whatever is made once is made
    await shared_server.until_empty()
    await until(lambda: not shared_server.listener._server.server_state.connections)
    tasks, files = len(asyncio.all_tasks()), open_files()
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(vanish(shared_server, number))
    await shared_server.until_empty()
    await until(lambda: not shared_server.listener._server.server_state.connections)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    gc.collect()
    await until(lambda: open_files() <= files)


async def vanish(server: SocketServer, number: int) -> None:
    async with connect(server.url("/ws/tts")) as socket:
        client = TtsClient(socket, server.voice_id)
        if number % 4:
            await client.hear()
            await client.hear()
            await client.create()
        if number % 4 > 1:
            await client.say("send_text", text="A sentence that nobody hears to its end. " * 5)
            await client.say("flush_context")
        if number % 4 > 2:
            await client.hear()
        socket.transport.abort()


async def test_control_frames_and_fragments_are_bounded(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared_server.tts() as client:
        with pytest.raises(ConnectionClosed):
            for _ in range(3 * connections.PINGS):
                await client.socket.ping()
            await client.hear()
        assert client.socket.close_code == 1008
    monkeypatch.setattr(connections, "FRAGMENTS", 10)
    async with shared_server.tts() as client:
        await client.socket.send(iter(["x"] * 9))
        assert "error" in await client.hear()
        with pytest.raises(ConnectionClosed):
            await client.socket.send(iter(["x"] * 30))
            await client.hear()
        assert client.socket.close_code == 1008


async def test_faults_of_a_connection_stop_the_work_and_fill_no_log(
    shared_server: SocketServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit(shared_server, monkeypatch, send_timeout_s=2 * PATIENCE_S)
    faults = {"text that is not UTF-8": 1007, "too many pings": 1008}
    for fault, expected in faults.items():
        async with shared_server.tts() as client:
            await client.create()
            await client.say("send_text", text="Speech that is cut short. " * 200)
            await client.say("flush_context")
            await client.hear()
            (session,) = shared_server.services.infrastructure.sockets.live
            if expected == 1007:
                await client.socket.send(b"\xff\xfe", text=True)
            else:
                client.socket.transport.write(b"\x89\x80\0\0\0\0" * (connections.PINGS + 1))
            await until(lambda session=session: session.ended)
            await shared_server.until_empty()
            with pytest.raises(ConnectionClosed):
                while True:
                    await client.hear()
            assert client.socket.close_code == expected, fault
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["answers no ping", "ends its side"])
async def test_a_client_that_is_lost_loses_its_session_at_once(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also while audio waits for it, which only the kernel would give up on."""
    limit(shared_server, monkeypatch, send_timeout_s=2 * PATIENCE_S)
    async with connect(shared_server.url("/ws/tts"), max_queue=1, close_timeout=0.2) as socket:
        client = TtsClient(socket, shared_server.voice_id)
        await client.hear()
        await client.hear()
        await client.create(audio_config={"sample_rate_hertz": 48_000})
        await client.say("send_text", text="Nobody listens to this sentence at all. " * 100)
        await client.say("flush_context")
        (session,) = shared_server.services.infrastructure.sockets.live
        await until(lambda: session.waiting_bytes > 200_000)
        (connection,) = shared_server.listener._server.server_state.connections
        assert isinstance(connection, connections.WebSocketConnection)
        if how == "ends its side":
            socket.transport.write_eof()
        else:
            connection.keepalive_timeout()  # as 10 s after a ping
        await until(lambda: session.ended)
        await shared_server.until_empty()


async def test_a_connection_without_a_request_is_closed(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    host, _, port = shared_server.address.partition(":")
    for beginning in (b"", b"GET /ws/tts HTTP/1.1\r\nHost: "):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(beginning)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ConnectionError):
                if await reader.read() == b"":
                    raise ConnectionError
        writer.close()


def open_files() -> int:
    """But for the database's: its connections are made as they are needed, and stay."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return len([link for link in links if not Path(link).name.startswith("test.db")])


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)
