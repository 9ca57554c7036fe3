"""Live transcription and speech by the client, over connections that are lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from antiphon import AsyncAntiphon, ServiceError
from antiphon.live import sentences
from models.audio import float_to_pcm16
from tests.antiphon.cutting_proxy import CuttingProxy, cutting_proxy
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import loud, quiet
from tests.servers import UNUSABLE_PROXIES

STEP = 3_200  # bytes: 100 ms
PAUSE = 24_000  # bytes: half a second
SENTENCES = "One two three. Four five six! Seven eight? Nine ten."


@pytest.fixture
async def proxy(stt_server: SocketServer) -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy(stt_server.address) as made:
        yield made


async def utterances(number: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        data = float_to_pcm16(loud(1)) + float_to_pcm16(quiet(1))
        for at in range(0, len(data), STEP):
            yield data[at : at + STEP]
            await asyncio.sleep(0.02)


async def collected(results: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in results]


async def pieces(text: str) -> AsyncIterator[str]:
    for at in range(0, len(text), 5):
        yield text[at : at + 5]


async def test_each_utterance_is_transcribed_once_though_connections_are_lost(
    stt_server: SocketServer, proxy: CuttingProxy
) -> None:
    async with AsyncAntiphon(f"http://{proxy.address}", stt_server.key) as client:
        finals = []
        async for event in client.listen(utterances(4), utterance_end_ms=300):
            if event["type"] == "transcription" and event["is_final"]:
                finals.append(event)
                if len(finals) in (1, 3):
                    proxy.cut()
    assert proxy.connections >= 3
    begins = [event["timestamp"] for event in finals]
    assert len(finals) == 4 and all(event["text"] for event in finals)
    assert begins == pytest.approx([0, 2, 4, 6], abs=0.4)
    assert [event["sentence_id"] for event in finals] == sorted(
        {event["sentence_id"] for event in finals}
    )


async def test_all_work_is_counted_for_the_key_that_asked_for_it(stt_server: SocketServer) -> None:
    url = f"http://{stt_server.address}"
    async with AsyncAntiphon(url, stt_server.key) as client:
        made = await client.request("POST", "/developer/api", json={"name": "other"})
    async with AsyncAntiphon(url, made["key"]) as other:
        speech = await other.speak("One two three.", response_format="wav")
        await other.transcribe(("speech.wav", speech))
        await other.chat("Say hello.")
        await other.correct("This are right.")
        assert [one async for one in other.stream_speech("Four five six.")]
        assert [
            one
            async for one in other.speak_live(pieces("Seven eight."), voice_id=stt_server.voice_id)
        ]
        assert [one async for one in other.listen(utterances(1), utterance_end_ms=300)]
        text = {"text": "Nine ten.", "voiceId": stt_server.voice_id}
        await other.request("POST", "/tts/v1/voice", json=text)
        await other.request("POST", "/tts-synthesize", json={"text": "Eleven."})
    await stt_server.until_empty()
    await stt_server.services.platform.billing.wait_for_settlements()
    async with AsyncAntiphon(url, stt_server.key) as client:
        usage = (await client.usage(by="key"))["usage"]
        whole = (await client.usage())["usage"]
    assert {one["key_id"] for one in usage} == {made["id"]}
    counts = Counter[str]()  # of both days, if one ended meanwhile
    for one in usage:
        counts[one["kind"]] += one["requests"]
    assert counts.pop("chat") in (1, 2)  # rules may correct without the model
    assert counts == {"tts": 5, "stt": 2}
    assert whole == [{**one, "key_id": None} for one in usage]


async def test_a_growing_text_is_spoken_whole_despite_a_lost_connection(
    server: SocketServer,
) -> None:
    async with cutting_proxy(server.address) as proxy:
        spoken: list[bytes] = []
        for cuts in (0, 1):
            async with AsyncAntiphon(f"http://{proxy.address}", server.key) as client:
                audio = b""
                async for data in client.speak_live(pieces(SENTENCES), voice_id=server.voice_id):
                    audio += data
                    if cuts and len(audio) > len(spoken[0]) // 3:
                        cuts = 0
                        proxy.cut()
            spoken.append(audio)
    assert proxy.connections == 3
    # The pause before a sentence is not spoken again, so that some bytes are others.
    assert len(spoken[1]) == pytest.approx(len(spoken[0]), abs=PAUSE) and len(spoken[0]) > 2 * PAUSE


async def test_a_local_service_is_reached_without_the_proxy(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in UNUSABLE_PROXIES.items():
        monkeypatch.setenv(name, value)
    async with AsyncAntiphon(f"http://{server.address}", server.key) as client:
        assert (await client.models())["data"]
        speech = client.speak_live(pieces("One two."), voice_id=server.voice_id)
        assert b"".join(await collected(speech))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One two. Three", ["One two. ", "Three"]),
        (
            "One. <speak>Two. Three!\nFour.</speak> Five. Six",
            ["One. ", "<speak>Two. Three!\nFour.</speak>", " Five. ", "Six"],
        ),
        (
            '<?xml version="1.0"?>\n<speak>Two. Three.</speak>',
            ['<?xml version="1.0"?>\n<speak>Two. Three.</speak>'],
        ),
        ("<speak>One. Two.", ["<speak>One. Two."]),
    ],
)
async def test_a_document_of_ssml_is_one_sentence_of_a_growing_text(
    text: str, found: list[str]
) -> None:
    assert await collected(sentences(pieces(text))) == found


async def test_what_no_other_connection_would_mend_is_raised(server: SocketServer) -> None:
    url = f"http://{server.address}"
    async with AsyncAntiphon(url, "sk_wrong") as stranger:
        with pytest.raises(ServiceError) as refused:
            await collected(stranger.listen(utterances(1)))
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    async with AsyncAntiphon(url, server.key) as client:
        with pytest.raises(ServiceError, match="voice"):
            await collected(client.speak_live(pieces(SENTENCES), voice_id="none"))
        with pytest.raises(ServiceError, match="languages"):
            await collected(client.listen(utterances(1), languages=["tlh"]))
    async with AsyncAntiphon("http://127.0.0.1:9", retries=1) as nowhere:
        with pytest.raises(ConnectionError):
            await collected(nowhere.listen(utterances(1)))


async def test_a_failure_of_the_source_is_the_callers(server: SocketServer) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(STEP)
        raise RuntimeError("the microphone is gone")

    async with AsyncAntiphon(f"http://{server.address}", server.key) as client:
        with pytest.raises(RuntimeError, match="microphone"):
            await collected(client.listen(broken()))


async def test_a_service_that_takes_sessions_and_loses_them_is_given_up(
    stt_server: SocketServer, proxy: CuttingProxy
) -> None:
    async with AsyncAntiphon(f"http://{proxy.address}", stt_server.key, retries=1) as client:
        with pytest.raises(ConnectionClosed):
            async for event in client.listen(utterances(4)):
                assert event["type"] != "transcription"
                proxy.cut()
    assert proxy.connections == 2
