"""A client that leaves stops the work of its socket, whatever its protocol."""

import asyncio
from typing import Any

import pytest
from starlette.routing import WebSocketRoute
from websockets.asyncio.client import ClientConnection

from api.app import routed_app
from deployments.gateway.wyoming import WyomingListener
from tests.api.leaving.conftest import LeavingSite
from tests.api.leaving.work import SOCKETS, TEXT, pcm
from tests.api.sockets.client import connect
from tests.api.wyoming.conftest import WyomingClient
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY_IN_PATH, UNKNOWN = "/telephony/twilio/{key}", "/{path:path}"

HEARD_BYTES = 4000  # more than the messages before the first audio

WAYS = [(path, "reset") for path in SOCKETS]
WAYS += [(path, way) for path in ("/ws/tts", "/ws/stt") for way in ("half", "close")]


async def test_every_socket_is_tested() -> None:
    paths = {one.path for one in routed_app().router.routes if isinstance(one, WebSocketRoute)}
    assert paths - {KEY_IN_PATH, UNKNOWN} == SOCKETS.keys()


async def heard(socket: ClientConnection, service: str) -> None:
    """Returns when some speech has been delivered, for which alone its client is charged."""
    size = 0
    async with asyncio.timeout(PATIENCE_S):
        while service != "stt" and size < HEARD_BYTES:
            size += len(await socket.recv())


@pytest.mark.parametrize(("path", "leave"), dict.fromkeys(WAYS))
async def test_work_ends_for_a_client_that_leaves_its_socket(
    site: LeavingSite, path: str, leave: str
) -> None:
    await site.forget()
    url, begin, service = SOCKETS[path]
    mark = "&" if "?" in url else "?"
    address = f"ws://{site.server.address}{url}{mark}apiKey={site.server.key}"
    headers = {"Authorization": f"Bearer {site.server.key}"}
    url = address.replace("{voice}", site.server.voice_id)
    async with connect(url, additional_headers=headers, max_queue=None, close_timeout=1) as socket:
        await begin(socket, site.server.voice_id)
        await until(lambda: site.steps.made > 2)
        await heard(socket, service)
        made = site.steps.made
        if leave == "reset":
            socket.transport.abort()
        elif leave == "half":
            socket.transport.write_eof()
        else:
            await socket.close()
        charged = await site.check_left(made)
    assert charged > 0 or service == "stt"


@pytest.mark.parametrize("leave", ["reset", "half"])
async def test_a_client_that_leaves_unread_audio_behind_is_noticed(
    site: LeavingSite, leave: str
) -> None:
    await site.forget()
    site.steps.slowness = 300.0  # a call takes 18 s
    try:
        headers = {"Authorization": f"Bearer {site.server.key}"}
        query = "encoding=linear16&sample_rate=16000"
        url = f"ws://{site.server.address}/v1/listen?{query}"
        async with connect(url, additional_headers=headers, close_timeout=1) as socket:
            for _ in range(24):
                await socket.send(pcm(4.0) + bytes(32_000))
            await until(lambda: site.steps.made > 0)
            made = site.steps.made
            if leave == "reset":
                socket.transport.abort()
            else:
                socket.transport.write_eof()
            await site.server.until_empty()
            assert site.steps.made == site.steps.live  # each call is at its first step
    finally:
        site.steps.slowness = 1.0
    await site.check_left(made)


SAID = {"rate": 16_000, "width": 2, "channels": 1}
WYOMING: dict[str, list[tuple[str, bytes, dict[str, Any]]]] = {
    "speech": [("synthesize", b"", {"text": TEXT})],
    "recognition": [
        ("transcribe", b"", {}),
        ("audio-start", b"", SAID),
        *[("audio-chunk", pcm(0.5), SAID)] * 60,
        ("audio-stop", b"", {}),
    ],
    "conversation": [("transcript", b"", {"text": TEXT[:4000]})],
}


@pytest.mark.parametrize("work", WYOMING)
async def test_work_ends_for_a_client_of_wyoming_that_leaves(site: LeavingSite, work: str) -> None:
    await site.forget()
    listener = WyomingListener(site.server.services, "127.0.0.1", 0, site.server.key)
    await listener.start()
    try:
        reader, writer = await asyncio.open_connection(*listener.address)
        client = WyomingClient(reader, writer, None)
        for kind, payload, data in WYOMING[work]:
            await client.send(kind, payload, **data)
        await until(lambda: site.steps.made > 2)
        made = site.steps.made
        writer.transport.abort()
        await site.check_left(made)
    finally:
        await listener.stop()
