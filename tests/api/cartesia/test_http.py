"""Cartesia's API over HTTP, over the tone engine."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.api.local_server import patient_client, serve_local
from tests.pipelines.audio.encode.test_files import decode
from tests.pipelines.voices.recordings import recording, wav

TEXT = "It costs 5 euros. Shall we go?"
SPOKEN_S = 2.3  # by the tone engine, with its pause
KATIE = "f786b574-daa5-4673-aa0c-cbe3e8534c02"
RAW: dict[str, Any] = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}
RATES = (8000, 16_000, 22_050, 24_000, 44_100, 48_000)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serve_local(tmp_path_factory.mktemp("cartesia")) as running:
        base, headers = f"{running.url}/cartesia", {"X-API-Key": running.key}
        with patient_client(base, headers) as opened:
            yield opened


def speak(http: httpx.Client, path: str = "/tts/bytes", **fields: Any) -> httpx.Response:
    body = {"model_id": "sonic-3", "transcript": TEXT, "voice": {"mode": "id", "id": KATIE}}
    return http.post(path, json={**body, "output_format": RAW, **fields})


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events, each of the type that its line says."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.split("\n\n")[:-1]:
        kind, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}"
    return events


@pytest.mark.parametrize(
    ("encoding", "size"), [("pcm_s16le", 2), ("pcm_mulaw", 1), ("pcm_alaw", 1)]
)
def test_raw_samples_have_the_encoding_and_rate_of_the_request(
    http: httpx.Client, encoding: str, size: int
) -> None:
    for rate in RATES:
        wanted = {"container": "raw", "encoding": encoding, "sample_rate": rate}
        answer = speak(http, output_format=wanted)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert len(answer.content) / size / rate == pytest.approx(SPOKEN_S, abs=0.4)


def test_samples_of_floats_are_those_of_integers(http: httpx.Client) -> None:
    floats = speak(http, output_format={**RAW, "encoding": "pcm_f32le"}).content
    pcm, integers = np.frombuffer(floats, "<f4"), np.frombuffer(speak(http).content, "<i2")
    assert len(pcm) == len(integers) and 0.1 < np.abs(pcm).max() < 1
    assert np.abs(pcm - integers / 32768).max() < 1e-3


@pytest.mark.parametrize("encoding", ["pcm_f32le", "pcm_s16le", "pcm_mulaw", "pcm_alaw"])
def test_a_wav_file_decodes_to_the_speech(http: httpx.Client, encoding: str) -> None:
    wanted = {"container": "wav", "encoding": encoding, "sample_rate": 24_000}
    answer = speak(http, output_format=wanted)
    assert answer.headers["content-type"] == "audio/wav"
    pcm, rate = decode(answer.content)
    assert rate == 24_000 and len(pcm) / rate == pytest.approx(SPOKEN_S, abs=0.4)
    assert 0.1 < np.abs(pcm).max() < 1


@pytest.mark.parametrize("rate", RATES)
def test_an_mp3_file_decodes_to_the_speech_at_each_of_its_rates(
    http: httpx.Client, rate: int
) -> None:
    for bit_rate in (None, 32_000, 64_000, 128_000, 192_000):
        wanted = {"container": "mp3", "sample_rate": rate, "bit_rate": bit_rate}
        answer = speak(http, output_format=wanted)
        assert answer.status_code == 200, answer.text
        pcm, decoded_rate = decode(answer.content)
        assert decoded_rate == rate and len(pcm) / rate == pytest.approx(SPOKEN_S, abs=0.4)


def test_events_carry_the_audio_and_the_times_of_its_words(http: httpx.Client) -> None:
    plain = events_of(speak(http, "/tts/sse"))
    assert {one["type"] for one in plain[:-1]} == {"chunk"} and plain[-1]["type"] == "done"
    timed = events_of(speak(http, "/tts/sse", add_timestamps=True, context_id="mine"))
    assert {one["context_id"] for one in timed} == {"mine"}
    for events in (plain, timed):
        audio = b"".join(base64.b64decode(one["data"]) for one in events if "data" in one)
        assert audio == speak(http).content
        assert [one["done"] for one in events] == [False] * (len(events) - 1) + [True]
        assert [one["status_code"] for one in events] == [206] * (len(events) - 1) + [200]
    times = [one["word_timestamps"] for one in timed if one["type"] == "timestamps"]
    words = [word for one in times for word in one["words"]]
    starts = [start for one in times for start in one["start"]]
    ends = [end for one in times for end in one["end"]]
    assert words == TEXT.split() and starts == sorted(starts)
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    assert ends[-1] <= SPOKEN_S + 0.4


def test_speed_is_a_factor_or_a_name(http: httpx.Client) -> None:
    usual = len(speak(http).content)
    for fields, ratio in (
        ({"generation_config": {"speed": 1.5, "volume": 1.2}}, 1.5),
        ({"speed": "slow"}, 0.8),
        ({"speed": "fast"}, 1.2),
    ):
        answer = speak(http, **fields)
        assert usual / len(answer.content) == pytest.approx(ratio, rel=0.15)
    assert speak(http, generation_config={"volume": 1.2, "emotion": "sad"}).headers[
        "X-Ignored-Fields"
    ] == ("generation_config.volume, generation_config.emotion")


def test_voices_have_ids_and_names_and_foreign_ones_stand_ins(
    http: httpx.Client,
) -> None:
    voices = http.get("/voices").json()["data"]
    first, second = voices[0], voices[1]
    by_id = speak(http, voice=first["id"]).content
    assert by_id == speak(http, voice={"id": first["name"].upper()}).content
    assert by_id != speak(http, voice={"id": second["id"]}).content
    assert speak(http, voice=KATIE, locale="en-GB").status_code == 200
    without = speak(http, voice=KATIE, language="tlh")
    assert (without.status_code, without.json()["error_code"]) == (404, "voice_not_found")


def test_voices_come_in_pages_that_end(http: httpx.Client) -> None:
    whole = http.get("/voices").json()
    assert not whole["has_more"] and len(whole["data"]) > 1
    seen: list[dict[str, Any]] = []
    while True:
        after = {"starting_after": seen[-1]["id"]} if seen else {}
        page = http.get("/voices", params={"limit": 1, **after}).json()
        seen += page["data"]
        if not page["has_more"]:
            break
    assert seen == whole["data"]
    last = {"starting_after": seen[-1]["id"]}
    assert http.get("/voices", params=last).json() == {"data": [], "has_more": False}
    one = seen[0]
    assert http.get(f"/voices/{one['id']}").json() == one
    assert one["gender"] in ("masculine", "feminine") and one["locales"][0]["is_native"]
    assert (one["access"], one["is_owner"]) == ("public", False)
    named = http.get("/voices", params={"q": one["name"].upper()}).json()["data"]
    assert one in named and len(named) < len(seen)
    alike = http.get("/voices", params={"gender": one["gender"]}).json()["data"]
    assert {found["gender"] for found in alike} == {one["gender"]}
    assert http.get("/voices", params={"is_owner": "true"}).json()["data"] == []
    assert http.get("/voices/none").status_code == 404
    assert http.get("/voices", params={"starting_after": "none"}).status_code == 404
    before = http.get("/voices", params={"ending_before": one["id"]})
    assert one["id"] not in {found["id"] for found in before.raise_for_status().json()["data"]}
    assert http.get("/voices", params={"ending_before": "none"}).status_code == 404


def test_events_are_raw_and_unknown_dictionaries_are_refused(http: httpx.Client) -> None:
    refused = speak(http, "/tts/sse", output_format={"container": "wav"})
    assert refused.status_code == 400 and "raw" in refused.json()["message"]
    missing = speak(http, pronunciation_dict_id="none")
    assert missing.status_code in (400, 404) and missing.json()["title"]


def test_a_short_token_speaks_and_makes_no_other(http: httpx.Client) -> None:
    body = {"grants": {"tts": True, "agent": True}, "expires_in": 60}
    assert http.post("/access-token", json=body).status_code == 400  # no such scope
    granted = http.post("/access-token", json={"grants": {"tts": True}, "expires_in": 60})
    assert granted.status_code == 200, granted.text
    bearer = {"Authorization": f"Bearer {granted.json()['token']}", "X-API-Key": ""}
    assert http.post("/tts/bytes", json={}, headers=bearer).status_code == 400  # it may speak
    assert http.get("/voices", headers=bearer).status_code == 403
    assert http.post("/access-token", json={}, headers=bearer).status_code == 403
    assert http.post("/access-token", json={"grants": {}}).status_code == 403
    assert http.post("/access-token", json={"expires_in": 9999}).status_code == 400


def test_what_is_not_followed_of_a_text_is_named_in_a_warning(http: httpx.Client) -> None:
    answer = speak(
        http, transcript='[laughter] Hello. <emotion value="sad"/> <speed ratio="1.2"/>Go.'
    )
    assert answer.status_code == 200
    assert answer.headers["warning"] == (
        "299 - \"markup not followed: [laughter], <emotion value='sad'/>\""
    )
    assert "warning" not in speak(http).headers
    answer = speak(http, transcript='Hello. <emotion\r\nX-Other: 1\r\n\u00e9="\x01"/> Go.')
    assert answer.status_code == 200 and "x-other" not in answer.headers
    assert "<emotion??X-Other: 1???='?'/>" in answer.headers["warning"]


def test_a_clip_becomes_a_voice_to_change_and_delete(
    http: httpx.Client,
) -> None:
    def clone(clip: bytes, **fields: str) -> httpx.Response:
        form = {"name": "Ann", "language": "en", "mode": "similarity", **fields}
        return http.post("/voices/clone", data=form, files={"clip": ("a.wav", clip)})

    short = wav(recording(1, 7))
    for answer, words in (
        (clone(short), "clip: 7.0 seconds in all; at least 10 are needed"),
        (clone(b"text"), "clip: 'a.wav'"),
        (clone(short, language="tlh"), "language: "),
        (clone(short, name=""), "name: "),
        (http.post("/voices/clone", files={"name": (None, "Ann")}), "clip: "),
    ):
        assert (answer.status_code, answer.json()["error_code"]) in (
            (400, "validation_error"),
            (400, "invalid_audio"),
        ), answer.text
        assert answer.json()["message"].startswith(words)
    made = clone(wav(recording(1, 12)), description="Calm")
    assert made.status_code == 200, made.text
    assert made.headers["X-Ignored-Fields"] == "mode"
    voice = made.json()
    assert (voice["name"], voice["language"], voice["access"]) == ("Ann", "en", "private")
    path = f"/voices/{voice['id']}"
    early = http.get(path)
    assert (early.status_code, early.json()["error_code"]) == (400, "voice_not_ready")
    changed = http.patch(path, json={"name": "Bea", "gender": "feminine"})
    assert changed.headers["X-Ignored-Fields"] == "gender"
    assert (changed.json()["name"], changed.json()["description"]) == ("Bea", "Calm")
    deleted = http.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    for again in (http.delete(path), http.patch(path, json={"name": "Cid"})):
        assert (again.status_code, again.json()["error_code"]) == (404, "voice_not_found")
