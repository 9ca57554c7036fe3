"""Hostile messages and listeners on the sockets of all three protocols."""

import asyncio
import json
import struct
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tests.api.inworld.socket_client import PATH as INWORLD
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = ["/ws/tts", "/ws/stt", INWORLD]
GREETINGS = {"/ws/tts": 2, "/ws/stt": 2, INWORLD: 0}
ODD_STRINGS = ["a\0b", "e" + "\u0301" * 3000, "\u202e\u2066", "\ufdfa" * 500, "\U000e0041" * 100]
MESSAGES: list[str | bytes] = [
    "",
    "null",
    "[]",
    '"text"',
    "{",
    "[" * 100_000,
    '{"a":' * 50_000,
    "{" + ",".join(f'"{number}":0' for number in range(50_000)) + "}",
    '{"type":"start","type":"stop"}',
    '{"type": "\\ud800"}',
    '{"type": NaN}',
    '{"type": 1e999}',
    '{"type": ' + "9" * 5000 + "}",
    '{"create_context": {"voice_id": 5}}',
    '{"create_context": {"voice_id": "a", "context_id": "' + "c" * 5000 + '"}}',
    b"",
    b"\0\xff" * 1000,
]


def odd_fields(odd: str) -> list[dict[str, Any]]:
    """Messages of each protocol with that string where it hurts most."""
    return [
        {odd: {}},
        {"type": odd},
        {"send_text": {"context_id": odd, "text": odd}},
        {"contextId": odd, "create": {"voiceId": odd}},
        {"type": "start", "languages": [odd]},
    ]


MESSAGES += [json.dumps(shape) for odd in ODD_STRINGS for shape in odd_fields(odd)]
AT_ONCE = 15  # messages a session; 20 wrong ones end it
ENDS = {1000, 1007, 1008, 1009}  # never 1011, the code of a failure of the service


async def greeted(socket: ClientConnection, path: str) -> None:
    for _ in range(GREETINGS[path]):
        await socket.recv()


async def answers_still(socket: ClientConnection, path: str) -> bool:
    """Whether the session answers a message; False when it has ended, as it may."""
    marker = "a message that is no JSON"
    try:
        await socket.send(marker)
        async with asyncio.timeout(PATIENCE_S):
            while "error" not in (event := str(await socket.recv())) and '"code"' not in event:
                pass
    except ConnectionClosed:
        assert socket.close_code in ENDS, socket.close_code
        return False
    return True


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("first", range(0, len(MESSAGES), AT_ONCE))
async def test_an_odd_message_is_answered_and_the_session_goes_on(
    site: SocketServer, path: str, first: int
) -> None:
    async with connect(site.url(path)) as socket:
        await greeted(socket, path)
        for message in MESSAGES[first : first + AT_ONCE]:
            await socket.send(message)
        assert await answers_still(socket, path)
    await site.until_empty()


@pytest.mark.parametrize("length", [1 << 62, (1 << 20) + 1])
async def test_a_frame_that_declares_too_many_bytes_ends_before_they_are_read(
    site: SocketServer, length: int
) -> None:
    async with site.tts() as client:
        client.socket.transport.write(struct.pack(">BBQI", 0x81, 0xFF, length, 0))
        async with asyncio.timeout(PATIENCE_S):
            await client.socket.wait_closed()
        assert client.socket.close_code in (1002, 1009)
    await site.until_empty()


async def test_a_listener_that_stalls_keeps_no_other_waiting(site: SocketServer) -> None:
    async with connect(site.url("/ws/tts"), max_queue=1, close_timeout=0.2) as socket:
        stalled = TtsClient(socket, site.voice_id)
        await stalled.receive()
        await stalled.receive()
        await stalled.create(audio_config={"sample_rate_hertz": 48_000})
        await stalled.send("send_text", text="It was a long day. " * 1000)
        await stalled.send("flush_context")
        async with site.tts() as other, asyncio.timeout(PATIENCE_S):
            await other.create()
            for _ in range(3):
                assert await other.speak("One sentence, and then another. " * 5)
        socket.transport.abort()
    await site.until_empty()
