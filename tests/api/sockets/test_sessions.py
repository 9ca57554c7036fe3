"""The session kernel for every protocol: timeouts, floods, keys, slow and lost clients."""

import asyncio
import contextlib
import gc
import logging
import os
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from api.http.turns import SLOTS
from api.sockets.kernel import session as session_module
from db.database import Database
from db.errors import DatabaseError
from deployments.gateway import connections, socket_connections
from pipelines.accounts import authentication
from pipelines.accounts.service import Accounts
from pipelines.errors import Unauthorized
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_handshake import new_key
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDED = "the API key or token was revoked or has expired"


def limit(server: SocketServer, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    sockets = server.services.infrastructure.sockets
    monkeypatch.setattr(sockets, "limits", sockets.limits.model_copy(update=limits))


async def last_error(client: TtsClient) -> tuple[str, int | None]:
    """The text of the last event, which is an error, and the close code."""
    events, code = await client.receive_rest()
    return events[-1]["error"]["message"], code


async def test_an_idle_client_gets_an_error_and_is_closed_with_1008(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, idle_s=2)
    await shared_server.until_empty()
    async with shared_server.tts() as client:
        await client.create()
        (session,) = shared_server.services.infrastructure.sockets.live
        due = session.timeouts._due["idle"]
        await client.send("send_text", text="x")  # each message restarts the timeout
        await until(lambda: session.timeouts._due["idle"] > due)
        assert await last_error(client) == ("no message came for 2 seconds", 1008)


async def test_a_session_is_closed_with_4408_at_its_maximum_duration(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, session_s=0.3)
    async with shared_server.tts() as client:
        assert await last_error(client) == ("the session has lasted 0.3 seconds", 4408)


async def test_a_flood_of_messages_ends_the_session(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, messages_per_s=20)
    async with shared_server.tts() as client:
        await client.create()
        with contextlib.suppress(ConnectionClosed):
            for _ in range(500):
                await client.send("send_text", text="")
        assert await last_error(client) == ("too many messages", 1008)


async def test_an_internal_error_is_reported_and_closes_with_1011(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.sockets.tts.conversation.parse_message", lambda _: 1 / 0)
    async with shared_server.tts() as client:
        await client.send("flush_context")
        assert await last_error(client) == ("the service failed; the session ends", 1011)
    await shared_server.until_empty()


async def test_a_close_code_of_a_client_is_no_failure_of_the_service(
    shared_server: SocketServer,
) -> None:
    async with shared_server.tts() as client:
        (session,) = shared_server.services.infrastructure.sockets.live
        await client.socket.close(1011)
    await shared_server.until_empty()
    assert session.close_code == 1006


@pytest.mark.parametrize(
    ("frame", "code"), [("x" * (1 << 20) + "x", 1009), (b"\xff\xfe", 1007)], ids=["large", "utf-8"]
)
async def test_oversized_and_invalid_utf8_frames_close_the_session(
    shared_server: SocketServer, frame: str | bytes, code: int
) -> None:
    async with shared_server.tts() as client:
        with pytest.raises(ConnectionClosed):  # maybe before a large frame is sent
            await client.socket.send(frame, text=True)
            await client.receive()
        assert client.socket.close_code == code
    await shared_server.until_empty()


async def test_a_revoked_key_ends_its_sessions_and_no_others_within_5_s(
    shared_server: SocketServer,
) -> None:
    services = shared_server.services
    recheck_s = services.infrastructure.sockets.limits.recheck_s
    assert recheck_s + authentication.CACHE_TTL_S < 5
    elsewhere = Database(services.infrastructure.settings.database_url)  # that of another gateway
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
                message, code = await last_error(client)
            assert message == ENDED and code == 4401
            await other.create()  # stays open
    finally:
        elsewhere.close()


@pytest.mark.parametrize(
    "way",
    ["ended", *(pytest.param(one, marks=pytest.mark.slow) for one in ("logout", "password"))],
)
async def test_a_token_ended_on_another_gateway_ends_only_its_sockets(
    shared_server: SocketServer, way: str
) -> None:
    services, email = shared_server.services, f"{way}@example.com"
    settings = services.infrastructure.settings
    elsewhere = Database(settings.database_url)
    try:
        accounts = Accounts(elsewhere, settings.secrets, services.platform.plans)
        kept = (await accounts.sign_up(email, "correct horse", "", "")).token
        token = (await accounts.log_in(email, "correct horse")).token
        principal = await accounts.authenticator.authenticate(kept)
        async with (
            connect(shared_server.url("/ws/tts", kept)) as other,
            connect(shared_server.url("/ws/tts", token)) as one,
        ):
            if way == "logout":
                await accounts.log_out(await accounts.authenticator.authenticate(token))
            elif way == "password":
                await accounts.change_password(principal, "correct horse", "battery staple")
            else:
                await accounts.end_other_sessions(principal)
            async with asyncio.timeout(PATIENCE_S):
                message, code = await last_error(TtsClient(one, shared_server.voice_id))
            assert message == ENDED and code == 4401
            await TtsClient(other, shared_server.voice_id).send("create_context")
            assert other.close_code is None
    finally:
        elsewhere.close()


async def test_a_revoked_key_ends_a_session_and_drops_its_queued_audio(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, send_timeout_s=2 * PATIENCE_S)
    await shared_server.until_empty()  # the sessions of earlier tests
    accounts = shared_server.services.platform.accounts
    key_id, key = await new_key(shared_server, ["tts"])
    principal = await accounts.authenticator.authenticate(shared_server.key)
    async with connect(shared_server.url("/ws/tts", key), max_queue=1) as socket:
        client = TtsClient(socket, shared_server.voice_id)
        await client.receive()
        await client.receive()
        await client.create(audio_config={"sample_rate_hertz": 48_000})
        await client.send("send_text", text="Nobody listens to this sentence at all. " * 100)
        await client.send("flush_context")
        (session,) = shared_server.services.infrastructure.sockets.live
        await until(lambda: session.waiting_bytes > 500_000)
        await accounts.delete_key(principal, key_id)
        await until(lambda: session.waiting_bytes < 1000)
        message, code = await last_error(client)
        assert message == ENDED and code == 4401


async def test_the_key_recheck_is_retried_after_a_failure(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = shared_server.services.platform.accounts
    limit(shared_server, monkeypatch, recheck_s=0.05)
    async with shared_server.tts() as client:
        # Revoked for as long as this machine takes to close the socket.
        failures = [ValueError("unforeseen"), DatabaseError("down")]
        answers = chain(failures, repeat(Unauthorized("revoked")))

        async def recheck(credential: str, maker: object) -> None:
            raise next(answers)

        with monkeypatch.context() as patched:
            patched.setattr(accounts.authenticator, "recheck", recheck)
            assert (await last_error(client))[1] == 4401
    messages = [record.message for record in caplog.records]  # a slow machine has others, too
    assert messages.count("keys_not_rechecked") == 2


async def test_a_stalled_reader_causes_backpressure_and_then_loses_its_session(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(shared_server, monkeypatch, send_timeout_s=1.0, outbox_bytes=200_000)
    await shared_server.until_empty()
    url = shared_server.url("/ws/tts")
    async with connect(url, max_queue=1, close_timeout=0.2) as socket:
        client = TtsClient(socket, shared_server.voice_id)
        await client.receive()
        await client.receive()
        config = {"audio_encoding": "LINEAR16", "sample_rate_hertz": 48_000}
        await client.create(audio_config=config)
        await client.send("send_text", text="Nobody listens to this sentence at all. " * 100)
        await client.send("flush_context")
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


@pytest.mark.slow
async def test_100_lost_clients_leak_no_tasks_or_open_files(shared_server: SocketServer) -> None:
    async with shared_server.tts() as client:
        await client.create()
        await client.speak("Hello.")  # creates what is created once, such as what renews holds
    await shared_server.until_empty()
    await until(lambda: not shared_server.listener._server.server_state.connections)
    tasks, files = len(asyncio.all_tasks()), open_files()
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(connect_and_abort(shared_server, number))
    await shared_server.until_empty()
    await until(lambda: not shared_server.listener._server.server_state.connections)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    gc.collect()
    await until(lambda: open_files() <= files)


async def connect_and_abort(server: SocketServer, number: int) -> None:
    async with connect(server.url("/ws/tts")) as socket:
        client = TtsClient(socket, server.voice_id)
        if number % 4:
            await client.receive()
            await client.receive()
            await client.create()
        if number % 4 > 1:
            await client.send("send_text", text="A sentence that nobody hears to its end. " * 5)
            await client.send("flush_context")
        if number % 4 > 2:
            await client.receive()
        socket.transport.abort()


async def test_too_many_pings_or_fragments_close_the_connection(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared_server.tts() as client:
        with pytest.raises(ConnectionClosed):
            for _ in range(3 * socket_connections.PINGS):
                await client.socket.ping()
            await client.receive()
        assert client.socket.close_code == 1008
    monkeypatch.setattr(socket_connections, "FRAGMENTS", 10)
    async with shared_server.tts() as client:
        await client.socket.send(iter(["x"] * 9))
        assert "error" in await client.receive()
        with pytest.raises(ConnectionClosed):
            await client.socket.send(iter(["x"] * 30))
            await client.receive()
        assert client.socket.close_code == 1008


async def test_costly_frames_wait_for_a_turn_in_the_event_loop(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_connections, "PARSE_S", 0.0)
    monkeypatch.setattr(socket_connections, "PARSED_BYTES", 64)
    turns = shared_server.services.infrastructure.admission.turns
    async with shared_server.tts() as client:
        held = [await turns.take(f"10.0.0.{number}") for number in range(SLOTS)]
        fragments = [b"\x01\x81\0\0\0\0{", *[b"\x00\x81\0\0\0\0 "] * 200, b"\x80\x81\0\0\0\0x"]
        client.socket.transport.write(b"".join(fragments))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.receive()
        for leave in held:
            leave()
        assert "error" in await client.receive()
        assert await client.create()


async def test_a_handshake_waits_for_a_turn_in_the_event_loop(
    shared_server: SocketServer,
) -> None:
    turns = shared_server.services.infrastructure.admission.turns
    held = [await turns.take(f"10.0.0.{number}") for number in range(SLOTS)]
    opening = asyncio.create_task(connect(shared_server.url("/ws/tts")).__aenter__())
    await asyncio.sleep(0.3)
    assert not opening.done()
    for leave in held:
        leave()
    async with asyncio.timeout(PATIENCE_S):
        await (await opening).close()


async def test_invalid_messages_pause_their_own_session_only(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "FAULT_PAUSE_S", 3.0)
    monkeypatch.setattr(session_module, "MAX_FAULT_PAUSE_S", 3.0)
    async with shared_server.tts() as client, shared_server.tts() as other:
        for _ in range(3):
            await client.socket.send("?")
        assert "error" in await client.receive()
        assert "error" in await client.receive()
        await other.create()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.receive()
    await shared_server.until_empty()


async def test_protocol_violations_stop_the_work_and_log_no_warnings(
    shared_server: SocketServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit(shared_server, monkeypatch, send_timeout_s=2 * PATIENCE_S)
    faults = {"text that is not UTF-8": 1007, "too many pings": 1008}
    for fault, expected in faults.items():
        async with shared_server.tts() as client:
            await client.create()
            await client.send("send_text", text="Speech that is cut short. " * 200)
            await client.send("flush_context")
            await client.receive()
            if expected == 1007:
                await client.socket.send(b"\xff\xfe", text=True)
            else:
                client.socket.transport.write(b"\x89\x80\0\0\0\0" * (socket_connections.PINGS + 1))
            await shared_server.until_empty()
            with pytest.raises(ConnectionClosed):
                while True:
                    await client.receive()
            assert client.socket.close_code == expected, fault
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["answers no ping", "half-closes"])
async def test_the_session_of_a_lost_client_ends_at_once(
    shared_server: SocketServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also while audio is queued for it, before the send timeout."""
    limit(shared_server, monkeypatch, send_timeout_s=2 * PATIENCE_S)
    await until(lambda: not shared_server.listener._server.server_state.connections)
    async with connect(shared_server.url("/ws/tts"), max_queue=1, close_timeout=0.2) as socket:
        client = TtsClient(socket, shared_server.voice_id)
        await client.receive()
        await client.receive()
        await client.create(audio_config={"sample_rate_hertz": 48_000})
        await client.send("send_text", text="Nobody listens to this sentence at all. " * 100)
        await client.send("flush_context")
        (session,) = shared_server.services.infrastructure.sockets.live
        await until(lambda: session.waiting_bytes > 200_000)
        (connection,) = shared_server.listener._server.server_state.connections
        assert isinstance(connection, socket_connections.WebSocketConnection)
        if how == "half-closes":
            socket.transport.write_eof()
        else:
            connection.keepalive_timeout()  # as 10 s after an unanswered ping
        await until(lambda: session.ended)
        await shared_server.until_empty()


async def test_a_connection_without_a_complete_request_is_closed(
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
    """Open files except the database's, whose connections are opened on demand and kept."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return len([link for link in links if not Path(link).name.startswith("test.db")])
