"""Characters whose halves come in two messages, on every socket that speaks."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from api.sockets.kernel.conversation import SPOKEN, ClientFault, parse_event
from pipelines.text.surrogates import join_halves, mark_halves
from pipelines.tts.session import SpeechStream
from tests.hostile.bodies.site import Site, serve
from tests.hostile.bodies.sockets import PROTOCOLS, Socket
from tests.patience import PATIENCE_S

FIRST, SECOND = "I am happy \ud83d", "\ude00 today. "
JOINED = "I am happy 😀 today. "


def pieces(path: str, voice: str) -> list[list[Any]]:
    """The messages of each socket for a text, and for its end."""
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16000}
    cartesia = {"voice": {"mode": "id", "id": voice}, "output_format": raw, "context_id": "a"}
    texts: list[Any]
    match path.rpartition("/")[2]:
        case "tts":
            begin: list[Any] = [{"create_context": {"context_id": "a", "voice_id": voice}}]
            texts = [{"send_text": {"context_id": "a", "text": one}} for one in (FIRST, SECOND)]
            return [begin, texts, [{"close_context": {"context_id": "a"}}]]
        case "voice:streamBidirectional":
            begin = [{"contextId": "a", "create": {"voiceId": voice}}]
            texts = [{"contextId": "a", "send_text": {"text": one}} for one in (FIRST, SECOND)]
            return [begin, texts, [{"contextId": "a", "close_context": {}}]]
        case "websocket":
            texts = [{**cartesia, "transcript": one, "continue": True} for one in (FIRST, SECOND)]
            return [[], texts, [{**cartesia, "transcript": "", "continue": False}]]
        case "speak":
            texts = [{"type": "Speak", "text": one} for one in (FIRST, SECOND)]
            return [[], texts, [{"type": "Close"}]]
        case "multi-stream-input" if "dialogue" in path:
            texts = [
                {"inputs": [{"text": one, "voice_id": voice}], "flush": one == SECOND}
                for one in (FIRST, SECOND)
            ]
            return [[{"voices": [voice]}], texts, [{"close_socket": True}]]
        case "multi-stream-input":
            texts = [
                {"text": one, "context_id": "a", "flush": one == SECOND} for one in (FIRST, SECOND)
            ]
            return [
                [{"text": " ", "context_id": "a"}],
                texts,
                [{"context_id": "a", "close_context": True}],
            ]
    texts = [{"text": one} for one in (FIRST, SECOND)]
    return [[{"text": " "}], texts, [{"text": ""}]]


SPEAKING = [one for one in PROTOCOLS if "tts" in one.path or "speak" in one.path]
SPEAKING += [one for one in PROTOCOLS if "stream-input" in one.path]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with serve(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.mark.parametrize("at", range(len(SPEAKING)))
@pytest.mark.asyncio(loop_scope="module")
async def test_a_character_cut_in_two_is_spoken(
    site: Site, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    protocol = SPEAKING[at]
    texts: list[str] = []
    speak = SpeechStream.speak

    async def noting(stream: SpeechStream, text: str, **more: Any) -> AsyncGenerator[Any, None]:
        texts.append(text)
        async for chunk in speak(stream, text, **more):
            yield chunk

    monkeypatch.setattr(SpeechStream, "speak", noting)
    voice = site.ids["speaking_voice"]
    path = protocol.path.format(voice_id=voice)
    socket = Socket(site.app, path, list(protocol.query), site.key)
    await socket.listen()
    for messages in pieces(path, voice):
        for message in messages:
            socket.send(json.dumps(message))
    async with asyncio.timeout(PATIENCE_S):
        while "".join(texts).strip() != JOINED.strip():
            await socket.listen(0.05)
            assert not [one for one in socket.events if '"error"' in one], socket.events
    await socket.leave()


def test_halves_are_joined_and_lone_ones_replaced() -> None:
    for texts, whole in {
        ("a\ud83d", "\ude00b"): "a😀b",
        ("\ud83d", "\ude00"): "😀",
        ("a\ud83d", "b"): "a\ufffdb",
        ("\ude00a",): "\ufffda",
        ("a\ud83d", "\ud83d", "\ude00"): "a\ufffd😀",
        ("a\ud83d", "", "\ude00"): "a😀",
        ("a\ud83d",): "a",
        ("", "é"): "é",
    }.items():
        text, half = "", ""
        for one in texts:
            more, half = join_halves(half + mark_halves(one))
            text += more
        assert text == whole, texts
        assert text.encode() and half.encode() is not None


def test_what_is_not_spoken_may_hold_no_halves() -> None:
    assert parse_event(r'{"text": "a\ud83d"}', pieces=SPOKEN)["text"] != "a"
    for text in (r'{"context_id": "a\ud83d"}', r'{"text": "a\ud83db"}', r'{"a": ["\ud83d"]}'):
        with pytest.raises(ClientFault, match="surrogate"):
            parse_event(text, pieces=SPOKEN)
    with pytest.raises(ClientFault, match="surrogate"):
        parse_event(r'{"text": "a\ud83d"}')
