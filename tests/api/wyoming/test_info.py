"""What the service says of itself to Wyoming's clients."""

import pytest

from antiphon.version import __version__
from tests.api.wyoming.conftest import Home

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_description_has_every_model_and_voice(home: Home) -> None:
    async with home.client() as client:
        await client.send("describe")
        event = await client.receive()
    assert event is not None and event[0] == "info"
    info = event[1]
    (asr,), (tts,), (handle,) = info["asr"], info["tts"], info["handle"]
    streamed = (
        asr["supports_transcript_streaming"],
        tts["supports_synthesize_streaming"],
        handle["supports_handled_streaming"],
    )
    assert streamed == (True, True, True)
    assert {one: info[one] for one in ("intent", "wake", "mic", "snd")} == dict.fromkeys(
        ("intent", "wake", "mic", "snd"), []
    )
    assert {asr["version"], tts["version"], handle["version"]} == {__version__}
    artefacts = [asr, tts, handle, *asr["models"], *tts["voices"], *handle["models"]]
    for one in artefacts:
        assert one["installed"] is True and one["name"] and one["description"] and one["version"]
        assert one["attribution"]["name"] and one["attribution"]["url"].startswith("http://test")
    assert [one["languages"] for one in tts["voices"]] == [["en"], ["en"], ["de"], ["hi"]]
    assert tts["voices"][0]["description"] == "Alto (American, female, fast)"
    assert len({one["name"] for one in tts["voices"]}) == 4
    assert "en" in asr["models"][0]["languages"]


async def test_programs_without_a_model_are_not_offered(own_home: Home) -> None:
    speakers = own_home.services.speech.synthesis.pipeline.directory._models
    assert isinstance(speakers, dict)
    speakers.clear()
    async with own_home.client() as client:
        await client.send("describe")
        event = await client.receive()
    assert event is not None and event[1]["tts"] == [] and event[1]["asr"]


async def test_a_ping_is_answered_with_its_text(home: Home) -> None:
    async with home.client() as client:
        await client.send("ping", text="hello")
        assert await client.receive() == ("pong", {"text": "hello"}, b"")


async def test_data_may_be_in_the_header_or_behind_it(home: Home) -> None:
    async with home.client() as client:
        client.writer.write(b'{"type": "ping", "data": {"text": "in the header"}}\n')
        client.writer.write(b'{"type": "ping", "data": {"text": "a"}, "data_length": 13}\n')
        client.writer.write(b'{"text": "b"}')
        client.writer.write(b'{"type":"ping","data":null,"data_length":null,"version":7}\n')
        answers = [await client.receive() for _ in range(3)]
    texts = [one[1]["text"] for one in answers if one is not None]
    assert texts == ["in the header", "b", ""]
