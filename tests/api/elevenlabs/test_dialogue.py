"""ElevenLabs' dialogues and its voice changer, over the engines without weights."""

import base64
import json
from typing import Any

import httpx
import pytest

from api.elevenlabs.voice_changer import with_pauses
from models.stt.base import Word
from tests.api.deepgram.test_recordings import SCRIPT, TALK
from tests.api.elevenlabs.test_speech import ADAM, RACHEL, SECOND
from tests.api.money import Books
from tests.pipelines.audio.encode.test_files import decode

Headers = dict[str, str]
PATH = "/v1/text-to-dialogue"
LINES = [
    {"text": "[cheerfully] Hello there.", "voice_id": RACHEL},
    {"text": "Good day, Ann.", "voice_id": ADAM},
    {"text": "Bye.", "voice_id": RACHEL},
]
SPOKEN = "Hello there. Good day, Ann. Bye."


@pytest.mark.parametrize("part", ["", "/stream"])
def test_a_dialogue_is_one_file_in_the_voices_of_its_lines(http: httpx.Client, part: str) -> None:
    for name in ("", "wav_24000", "opus_48000_64"):
        query = {"output_format": name} if name else {}
        answer = http.post(f"{PATH}{part}", json={"inputs": LINES}, params=query)
        assert answer.status_code == 200, answer.text
        pcm, rate = decode(answer.content)
        assert len(pcm) / rate == pytest.approx(len(SPOKEN) * 0.06 + 0.9, abs=0.5)
        assert answer.headers["character-cost"] and "cheerfully" in answer.headers["Warning"]


@pytest.mark.parametrize("part", ["/with-timestamps", "/stream/with-timestamps"])
def test_times_come_with_the_voices_that_speak(http: httpx.Client, part: str) -> None:
    answer = http.post(f"{PATH}{part}", json={"inputs": LINES}, params=SECOND)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    spoken: list[tuple[int, str, str]] = []
    ends = [0.0]
    for line in lines:
        assert base64.b64decode(line["audio_base64"])
        letters = (line["alignment"] or {"characters": []})["characters"]
        for segment in line["voice_segments"]:
            own = letters[segment["character_start_index"] : segment["character_end_index"]]
            text = "".join(own)
            spoken.append((segment["dialogue_input_index"], segment["voice_id"], text))
            assert ends[-1] <= segment["start_time_seconds"] < segment["end_time_seconds"]
            ends.append(segment["end_time_seconds"])
    assert "".join(text for _, _, text in spoken).strip() == SPOKEN
    assert {(number, voice) for number, voice, _ in spoken} == {(0, RACHEL), (1, ADAM), (2, RACHEL)}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"inputs": []}, 422),
        ({"inputs": [{"text": " ", "voice_id": RACHEL}]}, 422),
        ({"inputs": [{"text": "Hi."}]}, 422),
        ({"inputs": [{"text": "a" * 3000, "voice_id": RACHEL}] * 2}, 422),
        ({"inputs": LINES * 34}, 422),
        ({"inputs": [{"text": "<speak><b>", "voice_id": RACHEL}]}, 422),
        ({"inputs": [*LINES, {"text": "Hi.", "voice_id": "unknown"}]}, 404),
        ({"inputs": LINES, "settings": {"stability": 2}}, 422),
    ],
)
def test_wrong_dialogues_are_refused(http: httpx.Client, body: Any, status: int) -> None:
    answer = http.post(PATH, json=body)
    assert (answer.status_code, "detail" in answer.json()) == (status, True), answer.text


@pytest.mark.parametrize("path", ["/v1/voice-changer", "/v1/speech-to-speech"])
async def test_a_recording_is_spoken_by_another_voice_with_its_pauses(
    client: httpx.AsyncClient, xi: Headers, books: Books, path: str
) -> None:
    answer = await change(client, xi, f"{path}/{RACHEL}", voice_settings='{"speed": 1.0}')
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "audio/pcm"
    pause_s = 1.66  # of the recording's two seconds of silence
    assert len(answer.content) / 32_000 == pytest.approx(len(SCRIPT) * 0.06 + pause_s, abs=0.4)
    captures = [entry for entry in await books.entries() if entry.kind == "capture"]
    units = {entry.service: entry.units for entry in captures}
    assert units["stt"] == 6000 and units["tts"] >= len(SCRIPT) and len(captures) == 2


def test_pauses_between_words_become_breaks() -> None:
    words = [Word("One", 1.0, 1.4, 0.9), Word("<two>", 1.5, 2.0, 0.9), Word("3.", 30.0, 31.0, 0.9)]
    text = with_pauses(words, " ")
    expected = '<break time="1.00s"/> One &lt;two&gt; <break time="10.00s"/> 3.'
    assert text == f"<speak>{expected}</speak>"


async def test_wrong_changes_are_refused_and_cost_nothing(
    client: httpx.AsyncClient, xi: Headers, auth: Headers, books: Books
) -> None:
    path = f"/v1/voice-changer/{RACHEL}"
    cases = [
        (await change(client, xi, "/v1/voice-changer/unknown"), 404, "voice_not_found"),
        (await change(client, xi, path, voice_settings="{"), 422, "voice_settings"),
        (await change(client, xi, path, data=b"not audio"), 400, "invalid_audio"),
    ]
    for answer, status, words in cases:
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    body = {"name": "speech", "scopes": ["tts"]}
    key = await client.post("/developer/api", headers=auth, json=body)
    narrow = {"xi-api-key": key.json()["key"]}
    assert (await change(client, narrow, path)).status_code == 403
    assert (await books.charged("stt"))[0] == (await books.charged("tts"))[0] == 0


async def change(
    client: httpx.AsyncClient, xi: Headers, path: str, data: bytes = TALK, **form: str
) -> httpx.Response:
    files = {"audio": ("a.wav", data, "audio/wav")}
    return await client.post(path, headers=xi, params=SECOND, data=form, files=files, timeout=60)
