"""Realtime calls over WebRTC: what differs from the socket, and hostile offers."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, NotFoundError

from api.openai.realtime.calls import registry, routes
from configs.settings import WebRtcSettings
from pipelines.audio.webrtc import ice
from pipelines.audio.webrtc.offers import rewritten
from pipelines.audio.webrtc.peer import Peer
from pipelines.errors import InvalidRequest
from telemetry import metrics
from tests.api.native.test_visitors import SPEAKERS, browser_token
from tests.api.openai.realtime.caller import FRAME, PATH, Caller, Microphone, call
from tests.api.openai.realtime.test_client_secrets import secret_of
from tests.api.openai.realtime.test_conversation import LONG, says
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_handshake import new_key
from tests.api.sockets.test_sessions import limit
from tests.patience import PATIENCE_S, until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud


async def post(server: SocketServer, offer: str, key: str | None = None, **request: Any) -> Any:
    headers = {"Authorization": f"Bearer {key or server.key}", "Content-Type": "application/sdp"}
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=PATIENCE_S) as http:
        return await http.post(PATH, headers=headers, content=offer, **request)


async def test_a_caller_speaks_and_hears_the_answer(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("One two three.")
    hung_up = closes_of("1000")
    async with call(server.address, server.key, "model=gpt-realtime-mini") as caller:
        caller.microphone.say(loud(0.8))
        await caller.client.until("output_audio_buffer.stopped")
        assert caller.client.transcript() == "One two three."
        kinds = caller.client.kinds()
        assert "response.output_audio.delta" not in kinds
        names = ("response.content_part.added", "output_audio_buffer.started", "response.done")
        at = [kinds.index(name) for name in names]
        assert at == sorted(at)
        assert caller.heard_s() > 0.3
        async with httpx.AsyncClient(base_url=f"http://{server.address}") as http:
            hang_up = f"/openai{caller.location}/hangup"
            other = {"Authorization": f"Bearer {await secret_of(server)}"}
            assert (await http.post(hang_up, headers=other)).status_code == 404
            owner = {"Authorization": f"Bearer {server.key}"}
            assert (await http.post(hang_up, headers=owner)).status_code == 200
            await caller.socket.closed.wait()
            await server.until_empty()
            assert (await http.post(hang_up, headers=owner)).status_code == 404
    assert closes_of("1000") == hung_up + 1


def closes_of(code: str) -> float:
    return float(metrics.socket_closes.labels("call", code)._value.get())


@pytest.mark.parametrize("by_words", [True, False])
async def test_unheard_speech_is_dropped_and_truncated_by_the_server(
    server: SocketServer, heard: FakeTranscriber, by_words: bool
) -> None:
    """By words of the user, or by the client, which sends what OpenAI's browser client sends."""
    heard.answer = says("Wait, stop please.")
    async with call(server.address, server.key) as caller:
        client = caller.client
        await client.begin(LONG)
        await client.until("output_audio_buffer.started")
        await until(lambda: caller.heard_s() > 1)
        if by_words:
            caller.microphone.say(loud(0.8))
        else:
            await client.send("response.cancel")
            await client.send("output_audio_buffer.clear")
        cut = await client.until("conversation.item.truncated")
        kinds = client.kinds()
        assert "output_audio_buffer.cleared" in kinds and "output_audio_buffer.stopped" not in kinds
        assert 1000 <= cut["audio_end_ms"] < 6000
        await client.send("conversation.item.retrieve", item_id=cut["item_id"])
        item = (await client.until("conversation.item.retrieved"))["item"]
        kept = item["content"][0]["transcript"]
        assert kept and len(kept) < len(LONG) / 2 and LONG.startswith(kept)
        if by_words:
            await client.until("output_audio_buffer.stopped")
            assert client.events[-2]["type"] == "response.done"
        await client.send("output_audio_buffer.clear")  # nothing plays: no event
        await client.update(audio={"output": {"format": {"type": "audio/pcmu"}}})


async def test_all_queued_speech_is_dropped(server: SocketServer) -> None:
    """Of two responses at a time, of which one waits for the other."""
    async with call(server.address, server.key) as caller:
        client = caller.client
        await client.write(LONG)
        for _ in range(2):
            await client.send("response.create", response={"conversation": "none"})
        speaking: set[str] = set()
        while len(speaking) < 2:
            event = await client.until("response.output_audio_transcript.delta")
            speaking.add(event["response_id"])
        await until(lambda: caller.heard_s() > 1)
        await client.send("output_audio_buffer.clear")
        dropped = [await client.until("output_audio_buffer.cleared") for _ in range(2)]
        assert {event["response_id"] for event in dropped} == speaking


async def test_a_form_lets_no_visitor_name_speakers(server: SocketServer) -> None:
    token = await browser_token(server, "stt", "tts", "chat")
    session = json.dumps({"type": "realtime", "audio": SPEAKERS})
    async with caller_of(server) as caller:
        files = {"session": (None, session)}
        await caller.connect(f"http://{server.address}{PATH}", token, files=files)
        assert (await caller.client.until_error())["code"] == "insufficient_scope"
        await caller.socket.closed.wait()
    await server.until_empty()


async def test_a_secret_and_a_form_configure_the_session(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    secret = await secret_of(server, instructions="Speak about pelicans.", model="gpt-realtime")
    session = json.dumps({"type": "realtime", "audio": {"output": {"voice": "echo"}}})
    async with call(server.address, secret, files={"session": (None, session)}) as caller:
        created = caller.client.events[0]["session"]
        assert created["instructions"] == "Speak about pelicans."
        updated = (await caller.client.until("session.updated"))["session"]
        assert updated["audio"]["output"]["voice"] == "echo"
        assert updated["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24_000}
    async with caller_of(server) as caller, openai_client(server) as client:
        answer = await client.realtime.calls.create(
            sdp=await caller.offer(), session={"type": "realtime"}
        )
        location = answer.response.headers["location"]
        assert location.startswith("/v1/realtime/calls/rtc_")
        await client.realtime.calls.hangup(location.rpartition("/")[2])
    await server.until_empty()


def openai_client(server: SocketServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"http://{server.address}/openai/v1", api_key=server.key)


@asynccontextmanager
async def caller_of(server: SocketServer) -> AsyncIterator[Caller]:
    caller = Caller()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield caller
    finally:
        await caller.peer.close()


async def test_a_refused_call_says_why(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller_of(server) as caller, openai_client(server) as client:
        offer = await caller.offer()
        video = offer.replace("m=audio", "m=video")
        for wrong in ("", "v=0", "x" * 40_000, video, offer + offer, offer.replace("opus", "xyz")):
            answer = await post(server, wrong)
            assert answer.status_code in (400, 413), answer.text
            assert answer.json()["error"]["message"]
        assert (await post(server, offer, "sk_wrong")).status_code == 401
        _, narrow = await new_key(server, ["tts"])
        assert (await post(server, offer, narrow)).status_code == 403
        unknown = await post(server, offer, params={"intent": "sing"})
        assert unknown.json()["error"]["param"] == "intent"
        no_model = await post(server, offer, params={"model": "gpt-9"})
        assert no_model.json()["error"]["code"] == "model_not_found"
        with pytest.raises(NotFoundError, match="voice"):
            session: Any = {"type": "realtime", "audio": {"output": {"voice": "nobody"}}}
            await client.realtime.calls.create(sdp=offer, session=session)
        counts = [metrics.overload_refusals.labels(kind)._value for kind in ("call", "socket")]
        before = [count.get() for count in counts]
        with monkeypatch.context() as full:
            full.setattr(server.services.infrastructure.sockets, "at_most", 0)
            assert (await post(server, offer)).json()["error"]["code"] == "overloaded"
        # The alert `RequestsFail` subtracts the refusals of calls, whose 503 it counts.
        assert [count.get() for count in counts] == [before[0] + 1, before[1]]
        monkeypatch.setattr(registry, "MODULE", "no_such_module")
        assert (await post(server, offer)).status_code == 503
        calls = server.services.infrastructure.calls
        monkeypatch.setattr(calls, "settings", None)
        assert (await post(server, offer)).status_code == 404
    await server.until_empty()


async def test_a_call_that_never_connects_ends_and_costs_nothing(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its connection fails to close."""
    close = Peer.close

    async def fail(peer: Peer) -> None:
        await close(peer)
        raise RuntimeError

    monkeypatch.setattr(Peer, "close", fail)
    monkeypatch.setattr(routes, "CONNECTING_S", 0.2)
    books = await server.books()
    async with caller_of(server) as caller:
        assert (await post(server, await caller.offer())).status_code == 201
        assert server.services.infrastructure.limits.held
        await server.until_empty()
    assert not await books.entries()


async def test_calls_end_as_sockets_do(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an event, when the key is revoked or the service stops."""
    key_id, key = await new_key(server, ["stt", "tts", "chat"])
    limit(server, monkeypatch, recheck_s=0.05)
    accounts = server.services.platform.accounts
    principal = await accounts.authenticator.authenticate(server.key)
    async with call(server.address, key) as revoked, call(server.address, server.key) as drained:
        await accounts.delete_key(principal, key_id)
        assert "revoked" in (await revoked.client.until_error())["message"]
        await revoked.socket.closed.wait()
        stopping = server.services.infrastructure.sockets.drain(0, 1012, "this server is stopping")
        draining = asyncio.create_task(stopping)
        assert (await drained.client.until_error())["message"] == "this server is stopping"
        await drained.socket.closed.wait()
        await draining
        async with caller_of(server) as caller:
            assert (await post(server, await caller.offer())).status_code == 503


async def test_a_silent_stun_server_delays_the_answer_only(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ice, "STUN_S", 0.1)
    async with caller_of(server) as caller:
        with socket.socket(type=socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            url = f"stun:127.0.0.1:{silent.getsockname()[1]}"
            peer = Peer(WebRtcSettings(ice_servers=(url,)))
            assert "typ host" in await peer.answer(await caller.offer())
            await peer.close()


async def test_audio_is_bounded() -> None:
    """Also what comes before the data channel is open."""
    peer = Peer(WebRtcSettings())
    clock = asyncio.get_running_loop().time
    for kind, allowance in ((111, peer._ice.speech), (200, peer._ice.others)):  # RTP, RTCP
        began = clock()
        for _ in range(3000):
            peer._ice.data_received(bytes([128, kind]), 1)
        most = allowance.burst + allowance.per_s * (clock() - began)
        queued = peer._ice._queue.qsize()
        while not peer._ice._queue.empty():
            peer._ice._queue.get_nowait()
        assert allowance.burst <= queued <= most
    microphone = Microphone()
    peer._listen(microphone)
    await until(lambda: microphone._sent > 3 * FRAME)
    assert peer._inbox.empty()
    peer.opened.set()
    await until(lambda: not peer._inbox.empty())
    await peer.close()


async def test_only_what_a_call_needs_reaches_the_parser(server: SocketServer) -> None:
    async with caller_of(server) as caller:
        offer = await caller.offer()
    candidate = "a=candidate:1 1 udp 1 {} 9 typ host"
    lines = [candidate.format(f"8.8.8.{at}") for at in range(20)]
    lines += [candidate.format(address) for address in ("10.0.0.1", "127.0.0.1", "x.local")]
    section, _, rest = offer.partition("m=application")
    offer = section + "\r\n".join([*lines, "a=ice-lite", "a=ssrc:1 x", ""]) + "m=application" + rest
    assert "candidate" not in rewritten(offer, keeps_candidates=False)
    kept = rewritten(offer, keeps_candidates=True)
    assert [part.count("a=candidate") for part in kept.split("m=")] == [0, 8, 8]
    assert "10.0.0.1" not in kept and "lite" not in kept
    for name in ("ice-pwd", "fingerprint", "mid", "group", "sctp-port", "rtcp-mux", "setup"):
        with pytest.raises(InvalidRequest):
            rewritten(offer.replace(f"a={name}", "a=x"), keeps_candidates=False)
    with pytest.raises(InvalidRequest):
        rewritten(offer.replace("a=sendrecv", "a=inactive"), keeps_candidates=False)


async def test_aiortc_has_the_private_names_that_calls_use() -> None:
    """Fails on a release that renames them, which calls would survive at its defaults."""
    peer = Peer(WebRtcSettings())
    (transceiver,) = peer._connection.getTransceivers()
    receiver: Any = transceiver.receiver
    assert receiver._RTCRtpReceiver__jitter_buffer._prefetch == 1
    peer._connection.createDataChannel("oai-events")
    assert peer._connection.sctp is not None and peer._connection.sctp._advertised_rwnd > 0
    await peer.close()
