"""ElevenLabs' text to speech over HTTP, over the tone engine."""

import base64
import io
import json
import wave
from typing import Any

import httpx
import pytest

from tests.api.local_server import patient_client
from tests.pipelines.audio.encode.test_files import decode

RACHEL, ADAM = "21m00Tcm4TlvDq8ikWAM", "pNInz6obpgDQGcFmaJgB"
TEXT = "It costs 5 euros. Shall we go?"
SPOKEN_S = 2.3  # by the tone engine, with its pause
SECOND = {"output_format": "pcm_16000"}


def speak(
    http: httpx.Client, part: str = "", text: str = TEXT, voice: str = RACHEL, **body: Any
) -> httpx.Response:
    query = body.pop("query", {})
    path = f"/v1/text-to-speech/{voice}{part}"
    return http.post(path, json={"text": text, **body}, params=query)


@pytest.mark.parametrize(
    ("name", "media_type", "rate"),
    [
        ("", "audio/mpeg", 44_100),
        ("mp3_22050_32", "audio/mpeg", 22_050),
        ("mp3_44100_192", "audio/mpeg", 44_100),
        ("wav_24000", "audio/wav", 24_000),
        ("opus_48000_64", "audio/ogg", 48_000),
    ],
)
@pytest.mark.parametrize("part", ["", "/stream"])
def test_each_format_is_a_file_at_its_rate(
    http: httpx.Client, part: str, name: str, media_type: str, rate: int
) -> None:
    answer = speak(http, part, query={"output_format": name} if name else {})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == media_type
    pcm, decoded_rate = decode(answer.content)
    assert decoded_rate == rate
    assert len(pcm) / rate == pytest.approx(SPOKEN_S, abs=0.4)
    assert answer.headers["character-cost"] == str(len(TEXT))
    assert answer.headers["request-id"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [("pcm_16000", 32_000), ("pcm_48000", 96_000), ("ulaw_8000", 8000), ("alaw_8000", 8000)],
)
def test_samples_are_bare_and_speed_and_stability_are_settings(
    http: httpx.Client, name: str, bytes_per_s: int
) -> None:
    query = {"output_format": name}
    data = speak(http, query=query).content
    assert len(data) / bytes_per_s == pytest.approx(SPOKEN_S, abs=0.4)
    settings = {"speed": 1.2, "stability": 0.3, "similarity_boost": 0.7, "style": None}
    faster = speak(http, query=query, voice_settings=settings)
    assert len(faster.content) / len(data) == pytest.approx(1 / 1.2, rel=0.2)
    assert faster.headers["X-Ignored-Fields"].startswith("voice_settings.similarity_boost")


def test_the_letters_of_a_whole_text_are_timed(http: httpx.Client) -> None:
    answer = speak(http, "/with-timestamps", query=SECOND)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    timed = body["alignment"]
    assert timed == body["normalized_alignment"]
    assert "".join(timed["characters"]) == TEXT
    starts, ends = timed["character_start_times_seconds"], timed["character_end_times_seconds"]
    assert len(starts) == len(ends) == len(TEXT) and starts == sorted(starts)
    seconds = len(base64.b64decode(body["audio_base64"])) / 32_000
    assert 0 <= starts[0] < ends[-1] <= seconds + 0.1
    assert seconds == pytest.approx(SPOKEN_S, abs=0.4)
    file = speak(http, "/with-timestamps", query={"output_format": "wav_16000"}).json()
    with wave.open(io.BytesIO(base64.b64decode(file["audio_base64"]))) as whole:
        frames = len(whole.readframes(10**7)) // 2
        assert whole.getnframes() == frames == pytest.approx(seconds * 16_000, abs=2)


def test_what_is_not_spoken_has_no_letters(http: httpx.Client) -> None:
    text = '[x] Read <a href="https://example.com/">this</a> page [5] now.'
    timed = speak(http, "/with-timestamps", text=text).json()["alignment"]
    assert "".join(timed["characters"]) == 'Read href="https://example.com/">this</a> page now.'


def test_the_letters_of_a_stream_come_with_their_audio(http: httpx.Client) -> None:
    answer = speak(http, "/stream/with-timestamps", query=SECOND)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    audio = b"".join(base64.b64decode(one["audio_base64"]) for one in lines)
    assert len(lines) > 2 and len(audio) / 32_000 == pytest.approx(SPOKEN_S, abs=0.4)
    timed = [one["alignment"] for one in lines if one["alignment"]]
    letters = [letter for one in timed for letter in one["characters"]]
    assert "".join(letters).strip() == TEXT
    starts = [at for one in timed for at in one["character_start_times_seconds"]]
    assert starts == sorted(starts) and starts[-1] > 1.5


def test_voices_speak_by_id_or_name_and_foreign_ones_have_stand_ins(
    http: httpx.Client,
) -> None:
    voices = {one["voice_id"]: one for one in http.get("/v1/voices").json()["voices"]}
    rachel = http.get(f"/v1/voices/{RACHEL}").json()
    assert rachel == voices[rachel["voice_id"]]
    assert rachel["labels"]["gender"] == "female" and rachel["labels"]["language"] == "en"
    adam = http.get(f"/v1/voices/{ADAM}").json()
    assert adam["labels"]["gender"] == "male"
    for wanted in (adam["voice_id"], adam["name"]):
        assert speak(http, voice=wanted, query=SECOND).status_code == 200


def test_other_errors_name_a_status_and_a_message(http: httpx.Client) -> None:
    elsewhere = http.post("/v1/sound-generation", json={})
    assert (elsewhere.status_code, elsewhere.json()["detail"]["status"]) == (404, "not_found")
    dictionary = {"pronunciation_dictionary_id": "unknown", "version_id": "1"}
    unknown = speak(http, pronunciation_dictionary_locators=[dictionary])
    assert unknown.status_code == 404, unknown.text


def test_a_bearer_key_works_too_and_its_errors_have_the_usual_status(http: httpx.Client) -> None:
    bearer = {"Authorization": f"Bearer {http.headers['xi-api-key']}"}
    with patient_client(http.base_url, bearer) as other:
        assert speak(other, query=SECOND).status_code == 200
        refused = speak(other, text="")
        assert refused.status_code == 400 and refused.json()["detail"][0]["loc"] == ["body", "text"]
