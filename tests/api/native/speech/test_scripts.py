"""Scripts: several speakers in one request."""

import json
from typing import Any

import httpx
import pytest

from tests.api.money import Books
from tests.api.native.speech.test_speech import Headers, assert_fault

SCRIPT: list[dict[str, Any]] = [
    {"voice": "Alto", "text": "Hello there."},
    {"voice": "Bass", "text": "Good <break time='1s'/> day.", "pause": 2},
    {"text": "<speak>Bye, <sub alias='my friend'>pal</sub>.</speak>", "pause": 0},
]


async def test_a_script_is_spoken_with_its_voices_pauses_and_words(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    body = {"script": SCRIPT, "timestamps": True, "voice": "Alto"}
    answer = await client.post("/tts-synthesize", json=body, headers=auth)
    assert answer.status_code == 200, answer.text
    words = answer.json()["words"]
    assert [one["word"] for one in words] == ["Hello", "there.", "Good", "day.", "Bye,", "pal."]
    text = "\n".join(one["text"] for one in SCRIPT)
    assert [text[one["text_start"] : one["text_start"] + 3] for one in words] == [
        *("Hel", "the", "Goo", "day", "Bye", "pal"),
    ]
    pauses = [later["start"] - one["end"] for one, later in zip(words, words[1:], strict=False)]
    assert pauses[1:4] == pytest.approx([2.0, 1.0, 0.0], abs=0.15)
    units, _ = await books.charged("tts")
    assert units == pytest.approx(len("Hello there. Good day. Bye, my friend."), abs=4)


async def test_a_script_is_streamed_and_explained(client: httpx.AsyncClient, auth: Headers) -> None:
    answer = await client.post("/tts-stream", json={"script": SCRIPT}, headers=auth)
    assert json.loads(answer.text.splitlines()[-1]) == {"type": "complete"}
    shown = (await client.post("/tts/explain", json={"script": SCRIPT}, headers=auth)).json()
    voices = [one["voice_id"] for one in shown["sentences"]]
    assert voices[0] == voices[3] == shown["voice_id"] != voices[1] == voices[2]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"script": SCRIPT, "text": "a"}, ["text or script"]),
        ({"script": []}, ["text"]),
        ({"script": [{"text": "a"}] * 101}, ["script", "100"]),
        ({"script": [{"text": "a" * 2000}] * 3}, ["text", "5000"]),
        ({"script": [{"text": " "}]}, ["text"]),
        ({"script": ["a"]}, ["text"]),
        ({"script": [{"text": "a", "pause": 11}]}, ["script.0.pause", "10"]),
        ({"script": [{"text": "<speak>a"}]}, ["script.0.text: line 1, column 9"]),
        (
            {"script": [{"text": "ok"}, {"text": "<speak>a\n<brake/></speak>"}]},
            ["script.1.text: line 2, column 1"],
        ),
        ({}, ["text"]),
    ],
)
async def test_a_wrong_script_is_refused(
    client: httpx.AsyncClient, auth: Headers, body: dict[str, Any], words: list[str]
) -> None:
    assert_fault(await client.post("/tts-synthesize", json=body, headers=auth), words)


async def test_an_unknown_voice_of_a_script_is_told_as_any_other(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    body = {"script": [{"text": "a", "voice": "Zoe"}]}
    answer = await client.post("/tts-synthesize", json=body, headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (404, "voice_not_found")
