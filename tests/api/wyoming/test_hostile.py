"""Wyoming's clients that are broken or hostile: the connection ends with the reason or goes on, and
the others do not notice."""

import asyncio
import json
import random
from contextlib import AsyncExitStack

import pytest

from tests.api.wyoming.conftest import Event, Home, WyomingClient
from tests.plans import raise_plans

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINE = b'{"type": "ping"}\n'


async def still_answers(client: WyomingClient) -> bool:
    await client.send("ping", text="x")
    return [kind for kind, _, _ in await client.until("pong")][-1] == "pong"


async def ends(home: Home, data: bytes) -> list[Event]:
    """What is answered until the server ends the connection."""
    async with home.client() as client:
        client.writer.write(data)
        return await client.until_end()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b'"ping"\n',
        b"7\n",
        b"{}garbage\n",
        b"[" * 60_000 + b"\n",
        b'{"type": "ping", "data_length": -1}\n',
        b'{"type": "ping", "payload_length": -9223372036854775808}\n',
        b'{"type": "ping", "payload_length": 4294967296}\n',
        b'{"type": "ping", "data_length": 1048577}\n',
        b'{"type": "ping", "data_length": 1e3}\n',
        b'{"type": "ping", "data_length": "5"}\n',
        b'{"type": "ping", "data_length": true}\n',
        b'{"type": "ping", "data_length": 1' + b"0" * 5000 + b"}\n",
        b"x" * 70_000,
        b'{"type": "' + b"p" * 200_000,
    ],
)
async def test_what_cannot_be_framed_ends_the_connection_with_the_reason(
    home: Home, data: bytes
) -> None:
    (event,) = await ends(home, data)
    assert event[0] == "error" and event[1]["text"].startswith("header")


@pytest.mark.parametrize(
    "data",
    [
        b"{}\n",
        b'{"type": null}\n',
        b'{"type": ["ping"]}\n',
        b'{"type": "ping", "data": [1]}\n',
        b'{"type": "ping", "data": {"text": 5}}\n',
        b'{"type": "ping", "data_length": 4}\n[1]\n',
        b'{"type": "ping", "data_length": 4}\n\xff\xff\xff\xff',
        b'{"type": "ping", "data_length": 4}\n{"a"',
        b'{"type": "ping", "type": "ping"}\n',
        b'{"type": "transcript", "data": {"text": null}}\n',
        b'{"type": "synthesize", "data": {"text": "a", "voice": "b"}}\n',
        b'{"type": "synthesize", "data": {"text": "a", "text_format": "html"}}\n',
        b'{"type": "transcribe", "data": {"transcript_names": "a"}}\n',
    ],
)
async def test_a_wrong_event_is_answered_and_the_connection_goes_on(
    home: Home, data: bytes
) -> None:
    async with home.client() as client:
        client.writer.write(data)
        event = await client.receive()
        assert event is not None and event[0] == "error" and event[1]["text"]
        assert await still_answers(client)


async def test_unknown_events_are_ignored_with_their_payload(home: Home) -> None:
    async with home.client() as client:
        await client.send("run-satellite", b"\n" * 1000, a=[{}])
        await client.send("select-program", name="x")
        await client.send("x" * 10_000)
        assert await still_answers(client)


async def test_twenty_wrong_events_end_the_connection(home: Home) -> None:
    async with home.client() as client:
        for _ in range(30):
            await client.send("audio-stop")
        events = await client.until_end()
    assert events[-1][1]["text"] == "too many wrong messages"


async def test_random_bytes_end_or_are_answered_and_fail_nothing(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(5)
    pieces = [b'{"type": "', b"synthesize", b"audio-chunk", b'"', b"}", b"\n", b"{", b",", b":"]
    pieces += [
        b'"data": ',
        b'"payload_length": ',
        b'"data_length": ',
        b"7",
        b"-1",
        b"null",
        b"\xff",
    ]
    pieces += [b'{"type": "audio-chunk", "payload_length": 5, "data": {"rate": 8000}}\nabcde']
    for _ in range(150):
        data = b"".join(source.choices(pieces, k=source.randrange(1, 30)))
        async with home.client() as client:
            client.writer.write(data)
            client.writer.write_eof()
            for event in await client.until_end():
                assert event[0] == "error"
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
    async with home.client() as client:
        assert await still_answers(client)


@pytest.mark.parametrize(
    "data",
    [b"", b'{"type": "p', b'{"type": "ping", "data_length": 9}\n{"te', LINE[:-1]]
    + [b'{"type": "audio-chunk", "payload_length": 1000000}\n' + bytes(5000)],
)
async def test_a_client_that_leaves_amid_an_event_leaves_nothing_behind(
    home: Home, data: bytes
) -> None:
    async with home.client() as client:
        assert await still_answers(client)
        client.writer.write(data)
        await client.writer.drain()
        client.writer.transport.abort()
    await home.until_empty()
    assert home.services.infrastructure.limits.held == 0


async def test_a_hundred_idle_connections_do_not_keep_others_out(home: Home) -> None:
    async with AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(home.client()) for _ in range(100)]
        async with home.client() as client:
            assert await still_answers(client)
        assert all([await still_answers(one) for one in idle])
    await home.until_empty()


async def test_connections_beyond_the_plan_are_refused_with_the_reason(home: Home) -> None:
    raise_plans(home.services.infrastructure.settings.database_url, "starter")
    home.services.platform.accounts.authenticator.forget_workspace(home.books.workspace_id)
    limit = home.services.platform.plans.limits_of("starter").concurrent_websockets
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(home.client()) for _ in range(limit)]
        assert all([await still_answers(one) for one in opened])
        async with home.client() as client:
            ((kind, data, _),) = await client.until_end()
    assert (kind, data["code"]) == ("error", "concurrency_limit")
    await home.until_empty()
    raise_plans(home.services.infrastructure.settings.database_url)
    home.services.platform.accounts.authenticator.forget_workspace(home.books.workspace_id)


async def test_a_connection_that_says_nothing_is_ended(home: Home) -> None:
    sockets = home.services.infrastructure.sockets
    limits = sockets.limits
    sockets.limits = limits.model_copy(update={"idle_s": 0.2})
    async with home.client() as client:
        client.writer.write(b'{"type": "ping", "payload_length": 1000}\n')  # and no payload
        (event,) = await client.until_end()
    sockets.limits = limits
    assert event[0] == "error" and "no message came" in event[1]["text"]


async def test_a_flood_of_events_ends_the_connection(home: Home) -> None:
    async with home.client() as client:

        async def flood() -> None:
            with pytest.raises(ConnectionError):
                while True:
                    client.writer.write(b'{"type": "x"}\n' * 1000)
                    await client.writer.drain()

        flooding = asyncio.create_task(flood())
        event = await client.receive()
        assert event is not None and event[1]["text"] == "too many messages"
        client.writer.transport.abort()
        await flooding


async def test_a_key_that_is_revoked_ends_the_connections(own_home: Home) -> None:
    home = own_home
    accounts = home.services.platform.accounts
    async with home.client() as client:
        assert await still_answers(client)
        (session,) = home.services.infrastructure.sockets.live
        key_id = session.principal.key_id
        assert key_id is not None
        await accounts.delete_key(session.principal, key_id)
        (event,) = await client.until_end()
    assert "revoked" in event[1]["text"]
    async with home.client() as client:
        (refused,) = await client.until_end()
    assert (refused[0], refused[1]["code"]) == ("error", "unauthorized")


async def test_no_event_holds_the_key(home: Home) -> None:
    async with home.client() as client:
        await client.send("describe")
        event = await client.receive()
    assert "sk_" not in json.dumps(event[1] if event else "sk_")
