"""ElevenLabs' `POST /v1/speech-to-text`, over the scripted engine."""

import json
from typing import Any

import httpx
import pytest

from tests.api.deepgram.test_recordings import SCRIPT, TALK
from tests.api.money import Books
from tests.api.native.jobs.doing import recording

Headers = dict[str, str]


async def hear(
    client: httpx.AsyncClient, xi: Headers, data: bytes | None = TALK, **fields: Any
) -> httpx.Response:
    form: dict[str, Any] = {"model_id": "scribe_v1", **fields}
    files: dict[str, Any] = {"file": ("a.wav", data, "audio/wav")}
    if data is None:  # a form all the same
        form, files = {}, {name: (None, value) for name, value in form.items()}
    return await client.post("/v1/speech-to-text", headers=xi, data=form, files=files)


def text_of(words: list[dict[str, Any]]) -> str:
    return "".join(one["text"] for one in words)


async def test_a_recording_gives_words_and_spaces_with_their_times(
    client: httpx.AsyncClient, xi: Headers, books: Books
) -> None:
    options: dict[str, Any] = {
        "tag_audio_events": "true",
        "entity_detection": "null",
        "language_code": "auto",
    }
    answer = await hear(client, xi, **options)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["text"] == text_of(body["words"]) == SCRIPT
    assert body["language_code"] == "en" and 0 < body["language_probability"] < 1
    assert body["transcription_id"] == answer.headers["X-Request-Id"]
    assert body["audio_duration_secs"] == pytest.approx(6)
    kinds = [one["type"] for one in body["words"]]
    assert kinds == ["word", "spacing"] * 3 + ["word"]
    ends = [(one["start"], one["end"]) for one in body["words"]]
    assert ends == sorted(ends) and all(start <= end for start, end in ends)
    assert {one["speaker_id"] for one in body["words"]} == {None}
    assert all(one["logprob"] <= 0 for one in body["words"])
    assert "tag_audio_events" in answer.headers["X-Ignored-Fields"]
    assert (await books.charged("stt"))[0] == 6000


async def test_speakers_letters_and_files_come_when_asked_for(
    client: httpx.AsyncClient, xi: Headers
) -> None:
    formats = json.dumps([{"format": "srt", "max_characters_per_line": 20}, {"format": "txt"}])
    fields: dict[str, Any] = {
        "diarize": "true",
        "timestamps_granularity": "character",
        "language_code": "eng",
    }
    body = (await hear(client, xi, **fields, additional_formats=formats)).json()
    assert {one["speaker_id"] for one in body["words"]} == {"speaker_0"}
    assert body["language_probability"] == 1.0
    first = body["words"][0]
    assert [one["text"] for one in first["characters"]] == list("the")
    assert first["characters"][-1]["end"] == pytest.approx(first["end"], abs=0.002)
    assert "characters" not in body["words"][1]
    srt, plain = body["additional_formats"]
    assert srt["requested_format"] == "srt" and "-->" in srt["content"]
    assert plain["content"] == SCRIPT and not plain["is_base64_encoded"]
    bare = (await hear(client, xi, timestamps_granularity="none")).json()
    assert bare["words"] == [] and bare["text"] == SCRIPT


async def test_two_channels_are_two_transcripts_or_one_by_time(
    client: httpx.AsyncClient, xi: Headers, books: Books
) -> None:
    stereo = recording(3, channels=2)
    body = (await hear(client, xi, stereo, use_multi_channel="true")).json()
    assert [one["text"] for one in body["transcripts"]] == [SCRIPT, SCRIPT]
    assert [one["channel_index"] for one in body["transcripts"]] == [0, 1]
    assert {one["channel_index"] for one in body["transcripts"][1]["words"]} == {1}
    assert (await books.charged("stt"))[0] == 6000
    fields = {"use_multi_channel": "true", "multichannel_output_style": "combined"}
    body = (await hear(client, xi, stereo, **fields)).json()
    said = [one for one in body["words"] if one["type"] == "word"]
    assert len(said) == 8 and {one["channel_index"] for one in said} == {0, 1}
    starts = [one["start"] for one in said]
    assert starts == sorted(starts)


async def test_a_mono_recording_with_multi_channel_is_one_transcript(
    client: httpx.AsyncClient, xi: Headers, books: Books
) -> None:
    body = (await hear(client, xi, recording(3), use_multi_channel="true")).json()
    (only,) = body["transcripts"]
    assert (only["text"], only["channel_index"]) == (SCRIPT, 0)
    assert (await books.charged("stt"))[0] == 3000


async def test_raw_samples_have_their_name_and_an_address_must_be_public(
    client: httpx.AsyncClient, xi: Headers
) -> None:
    raw = await hear(client, xi, TALK[44:], file_format="pcm_s16le_16")
    assert raw.json()["text"] == SCRIPT
    for name in ("source_url", "cloud_storage_url"):
        refused = await hear(client, xi, None, **{name: "https://localhost/a"})
        assert refused.status_code == 400, refused.text
        assert refused.json()["detail"]["status"] == "invalid_url"
    both = await hear(client, xi, source_url="https://example.com/a.wav")
    assert (both.status_code, both.json()["detail"][0]["loc"]) == (422, ["body", "source_url"])


async def test_a_form_without_a_recording_names_its_field(
    client: httpx.AsyncClient, xi: Headers
) -> None:
    answer = await hear(client, xi, None)
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", "file"])


async def test_a_text_is_aligned_with_the_words_that_were_recognised(
    client: httpx.AsyncClient, xi: Headers, books: Books
) -> None:
    answer = await align(client, xi, "The Quick, brown\nhorse!")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [one["text"] for one in body["words"]] == ["The", "Quick,", "brown", "horse!"]
    assert "".join(one["text"] for one in body["characters"]) == "The Quick, brown\nhorse!"
    for entries in (body["words"], body["characters"]):
        times = [time for one in entries for time in (one["start"], one["end"])]
        assert times == sorted(times)
    heard = (await hear(client, xi)).json()["words"]
    for mine, theirs in zip(body["words"], heard[::2], strict=True):
        assert (mine["start"], mine["end"]) == (theirs["start"], theirs["end"])
    losses = [one["loss"] for one in body["words"]]
    assert losses[3] > max(losses[:3]) >= 0 and body["loss"] == pytest.approx(
        sum(losses) / 4, abs=1e-3
    )
    assert (await books.charged("stt"))[0] == 2 * 6000


async def test_texts_that_cannot_be_aligned_are_refused(
    client: httpx.AsyncClient, xi: Headers, books: Books
) -> None:
    cases = [
        (await align(client, xi, ""), 422),
        (await align(client, xi, "–"), 422),
        (await align(client, xi, "a" * 16_001), 422),
        (await align(client, xi, "fox", recording(0)), 400),
        (await client.post("/v1/forced-alignment", headers=xi, json={"text": "fox"}), 400),
    ]
    for answer, status in cases:
        assert (answer.status_code, "detail" in answer.json()) == (status, True), answer.text
    assert (await books.charged("stt"))[0] == 0


async def align(
    client: httpx.AsyncClient, xi: Headers, text: str, data: bytes = TALK
) -> httpx.Response:
    files = {"file": ("a.wav", data, "audio/wav")}
    return await client.post("/v1/forced-alignment", headers=xi, data={"text": text}, files=files)
