"""Vendors' markup on the sockets that speak: in pieces it is not spoken, and it is named."""

import re

import pytest

from models.tts.base import SynthesisRequest
from pipelines.ports import TTSModel
from pipelines.text.chunking import TextChunk
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from tests.api.cartesia.socket_client import MORE, cartesia
from tests.api.deepgram.socket_client import deepgram
from tests.api.elevenlabs.test_streams import speaking
from tests.api.inworld.socket_client import inworld
from tests.api.sockets.conftest import SocketServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = (
    'One <speed ratio="1.5"/> two [laughs] three <break time="0.1s"/> four. '
    'Five <emotion value="sad"/> six <spell>A B</spell> seven. [whispers] Eight.'
)
WORDS = "OnetwothreefourFivesixABsevenEight"
DROPPED = ["[laughs]", '<emotion value="sad"/>', "[whispers]"]
PIECES = [TEXT[at : at + 3] for at in range(0, len(TEXT), 3)]


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> list[SynthesisRequest]:
    """What engines get."""
    calls: list[SynthesisRequest] = []
    call = SpeechPipeline._call

    def record(
        self: SpeechPipeline, plan: SpeechPlan, chunk: TextChunk, deadline_s: float = 0.0
    ) -> tuple[TTSModel, SynthesisRequest]:
        model, request = call(self, plan, chunk, deadline_s)
        calls.append(request)
        return model, request

    monkeypatch.setattr(SpeechPipeline, "_call", record)
    return calls


def words(spoken: list[SynthesisRequest]) -> str:
    return "".join(re.findall(r"\w+", " ".join(request.text for request in spoken)))


async def test_our_socket(shared_server: SocketServer, spoken: list[SynthesisRequest]) -> None:
    async with shared_server.tts() as client:
        context_id = await client.create()
        for number, piece in enumerate(PIECES):
            await client.send("send_text", context_id=context_id, text=piece)
            if number in (2, 7, 12):  # within a cue
                await client.send("flush_context", context_id=context_id)
                await client.audio("flush_completed")
        await client.send("close_context", context_id=context_id)
        events, _ = await client.receive_rest()
    assert words(spoken) == WORDS
    warnings = events[-1]["context_closed"]["warnings"]
    assert warnings == [f"markup not followed: {cue}" for cue in DROPPED]


async def test_deepgrams_socket(
    shared_server: SocketServer, spoken: list[SynthesisRequest]
) -> None:
    async with deepgram(shared_server, "/v1/speak") as client:
        for piece in PIECES:
            await client.send("Speak", text=piece)
        await client.send("Close")
        events, *_ = await client.rest()
    assert words(spoken) == WORDS
    named = ", ".join(one["description"] for one in events if one["type"] == "Warning")
    assert all(cue in named for cue in DROPPED)


async def test_cartesias_socket(
    shared_server: SocketServer, spoken: list[SynthesisRequest]
) -> None:
    async with cartesia(shared_server) as client:
        for piece in PIECES:
            await client.say(piece, **MORE)
        await client.say("")
        await client.until("done")
    assert words(spoken) == WORDS


@pytest.mark.parametrize("kind", ["stream-input", "multi-stream-input"])
async def test_elevenlabs_sockets(
    shared_server: SocketServer, spoken: list[SynthesisRequest], kind: str
) -> None:
    named = {"context_id": "c"} if kind.startswith("multi") else {}
    async with speaking(shared_server, kind) as client:
        for piece in PIECES:
            await client.send(piece, **named)
        if named:
            await client.send("", flush=True, **named)
            await client.send(close_context=True, **named)
        else:
            await client.send("")
        await client.until_final(named.get("context_id"))
    assert words(spoken) == WORDS


async def test_inworlds_socket(shared_server: SocketServer, spoken: list[SynthesisRequest]) -> None:
    async with inworld(shared_server) as client:
        await client.create(autoMode=True, autoModeStrategy="SENTENCE_BOUNDARY")
        for piece in PIECES:
            await client.send_text(piece)
        await client.send("close_context", "c")
        messages = ""
        while "contextClosed" not in (result := await client.receive()):
            messages += result["status"]["message"]
        messages += result["status"]["message"]
    assert words(spoken) == WORDS
    assert all(cue in messages for cue in DROPPED)


async def test_our_socket_names_what_no_voice_reads(
    shared_server: SocketServer, spoken: list[SynthesisRequest]
) -> None:
    async with shared_server.tts() as client:
        context_id = await client.create()
        await client.send("send_text", context_id=context_id, text="Hello Привет, мир! my friend.")
        await client.send("close_context", context_id=context_id)
        events, _ = await client.receive_rest()
    assert words(spoken) == "Hellomyfriend"
    assert events[-1]["context_closed"]["unread"] == ["Привет, мир"]
