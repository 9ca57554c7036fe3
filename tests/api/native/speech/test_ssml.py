"""SSML and breaks in the requests of every speech endpoint."""

import json
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
import pytest

from tests.api.money import Books
from tests.api.native.speech.test_speech import Headers, assert_fault, speak

DOCUMENT = (
    '<speak version="1.1" xml:lang="en-US">\n'
    '  <s>Hello <mark name="here"/>there.</s><break time="2s"/>\n'
    '  The <sub alias="World Wide Web Consortium">W3C</sub> met.\n'
    "</speak>"
)
BAD = "<speak>\n  Hello <brake/> there.</speak>"


async def test_a_file_of_a_document_has_its_words_and_marks(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    answer = (await speak(client, auth, text=DOCUMENT, timestamps=True)).json()
    words, (mark,) = answer["words"], answer["marks"]
    assert [one["word"] for one in words] == ["Hello", "there.", "The", "W3C", "met."]
    assert (mark["mark"], mark["time"]) == ("here", words[1]["start"])
    assert words[2]["start"] - words[1]["end"] == pytest.approx(2.0, abs=0.1)
    assert DOCUMENT[mark["text_start"] :].startswith("<mark")
    spoken = len("Hello there. The World Wide Web Consortium met.")
    units, _ = await books.charged("tts")
    assert units == pytest.approx(spoken, abs=2)


async def test_a_word_before_a_mark_and_another_rate_ends_before_the_next(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    text = '<speak>One two <mark name="m"/><prosody rate="slow">three four</prosody></speak>'
    words = (await speak(client, auth, text=text, timestamps=True)).json()["words"]
    assert [one["word"] for one in words] == ["One", "two", "three", "four"]
    assert all(one["end"] <= other["start"] for one, other in pairwise(words))


async def test_a_stream_of_a_document_has_the_same(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    body = {"text": DOCUMENT, "timestamps": True}
    answer = await client.post("/tts-stream", json=body, headers=auth)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    results = [line["result"] for line in lines if line["type"] == "chunk"]
    assert [one["word"] for result in results for one in result["words"]][3:] == ["W3C", "met."]
    assert [one["mark"] for result in results for one in result.get("marks", [])] == ["here"]
    assert lines[-1] == {"type": "complete"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tts-synthesize", {}, "text"),
        ("/tts-stream", {}, "text"),
        ("/openai/v1/audio/speech", {"voice": "alloy"}, "input"),
        ("/tts/v1/voice", {"voiceId": "Alto"}, "text"),
        ("/tts/v1/voice:stream", {"voiceId": "Alto"}, "text"),
    ],
)
async def test_every_endpoint_speaks_documents_and_names_the_place_of_a_fault(
    client: httpx.AsyncClient, auth: Headers, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await client.post(path, json={**body, field: DOCUMENT}, headers=auth)
    assert answer.status_code == 200, answer.text
    refused = await client.post(path, json={**body, field: BAD}, headers=auth)
    assert refused.status_code == 400
    message = refused.json()["message"]
    assert message == "text: line 2, column 9: <brake> is not supported"


async def test_an_unknown_voice_of_a_document_is_told_as_any_other(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await speak(client, auth, text='<speak><voice name="Zoe">a</voice></speak>')
    assert (answer.status_code, answer.json()["error"]) == (404, "voice_not_found")


@pytest.mark.parametrize(
    "text",
    [
        "<speak>" + "<p>" * 1600,
        "<speak>" + "<p>" * 700 + "</p>" * 700 + "</speak>",
        "<speak>" + "<break time='10s'/>" * 200 + "a</speak>",
        "<speak " + " ".join(f"a{n}='1'" for n in range(600)) + ">a</speak",
    ],
)
async def test_hostile_documents_are_refused_at_once(
    client: httpx.AsyncClient, auth: Headers, text: str
) -> None:
    assert_fault(await speak(client, auth, text=text), ["text"])


@pytest.mark.parametrize("tag", ['<break time="1.5s"/>', "[pause 1.5s]", "[pause:1500ms]"])
async def test_a_break_in_a_plain_text_is_a_pause(
    client: httpx.AsyncClient, auth: Headers, tag: str
) -> None:
    plain = (await speak(client, auth, text="Hello there. And bye.")).json()
    paused = (await speak(client, auth, text=f"Hello there. {tag} And bye.")).json()
    longer_s = paused["duration_seconds"] - plain["duration_seconds"]
    assert longer_s == pytest.approx(1.5 - 0.18, abs=0.1)
    body = {"text": f"Hello there. {tag} And bye [pause](/y)."}
    shown = (await client.post("/tts/explain", json=body, headers=auth)).json()
    assert [one["text"] for one in shown["sentences"]] == ["Hello there.", "And bye pause."]
    assert 1.5 < shown["estimated_seconds"] < 4.5


async def test_openais_voices_are_chosen_by_the_language_of_a_document(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voices = (await client.get("/default-voices", headers=auth)).json()["data"]
    german = next(one for one in voices if one["labels"]["language"] == "de")

    async def pitch(**body: str) -> float:
        """Of the tone engine's voice, in Hz."""
        body = {"model": "tts-1", "response_format": "pcm"} | body
        answer = await client.post("/openai/v1/audio/speech", json=body, headers=auth)
        assert answer.status_code == 200, answer.text
        pcm = np.frombuffer(answer.content, "<i2")
        return float(np.abs(np.fft.rfft(pcm)).argmax() * 24_000 / len(pcm))

    text = "Guten Morgen, wie geht es dir heute?"
    named = await pitch(input=text, voice=german["voice_id"])
    assert await pitch(input="Good morning.", voice="alloy") != pytest.approx(named, abs=2)
    for document in (f'<speak xml:lang="de">{text}</speak>', f"<speak>{text}</speak>"):
        assert await pitch(input=document, voice="alloy") == pytest.approx(named, abs=2)
