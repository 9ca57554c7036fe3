"""Deepgram's `POST /v1/listen`, over the scripted engine."""

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from api.services import Services
from models.audio import encode_g711, pcm16_to_float
from tests.api.money import Books
from tests.api.native.jobs.doing import recording
from tests.hostile.audio_files import encode, wav
from tests.pipelines.webhooks.receivers import Authority, receiver

Headers = dict[str, str]
SCRIPT = "the quick brown fox"
SOUND = recording(2)[44:]
TALK = wav(SOUND + bytes(64_000) + SOUND, rate=16_000)  # one utterance in six seconds


@pytest.fixture
def token(auth: Headers) -> Headers:
    """As Deepgram's clients send a key."""
    return {"Authorization": auth["Authorization"].replace("Bearer", "Token")}


async def listen(
    client: httpx.AsyncClient, token: Headers, data: bytes = TALK, **query: Any
) -> httpx.Response:
    headers = {**token, "Content-Type": "audio/wav"}
    return await client.post("/v1/listen", headers=headers, content=data, params=query)


async def test_a_recording_gives_metadata_and_a_channel_with_timed_words(
    client: httpx.AsyncClient, token: Headers, books: Books
) -> None:
    answer = await listen(client, token, model="nova-3", tag=["a", "b"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    metadata = body["metadata"]
    assert metadata["request_id"] == answer.headers["X-Request-Id"]
    assert metadata["sha256"] == hashlib.sha256(TALK).hexdigest()
    assert metadata["duration"] == pytest.approx(6) and metadata["channels"] == 1
    (uuid,) = metadata["models"]
    assert set(metadata["model_info"][uuid]) == {"name", "version", "arch"}
    assert metadata["tags"] == ["a", "b"] and metadata["created"].endswith("Z")
    (channel,) = body["results"]["channels"]
    (best,) = channel["alternatives"]
    assert best["transcript"] == SCRIPT
    assert [one["word"] for one in best["words"]] == SCRIPT.split()
    assert set(best["words"][0]) == {"word", "start", "end", "confidence"}
    assert 0 < best["confidence"] <= 1 and "paragraphs" not in best
    assert "utterances" not in body["results"] and "detected_language" not in channel
    assert (await books.charged("stt"))[0] == 6000


async def test_utterances_paragraphs_speakers_and_the_language_are_told_when_asked_for(
    client: httpx.AsyncClient, token: Headers
) -> None:
    query: dict[str, Any] = {
        "utterances": "true",
        "paragraphs": "true",
        "diarize": "true",
        "utt_split": 2.0,
    }
    body = (await listen(client, token, **query, detect_language="true")).json()
    (channel,) = body["results"]["channels"]
    assert channel["detected_language"] == "en"
    best = channel["alternatives"][0]
    assert {one["speaker"] for one in best["words"]} == {0}
    assert best["words"][0]["punctuated_word"] == "the"
    (first,) = body["results"]["utterances"]
    assert set(first) == {
        *("start", "end", "confidence", "channel", "transcript", "words", "speaker", "id")
    }
    assert first["transcript"] == SCRIPT and first["start"] < first["end"]
    assert (first["channel"], first["speaker"]) == (0, 0)
    paragraphs = best["paragraphs"]
    assert paragraphs["transcript"].startswith("\nSpeaker 0: the quick")
    (paragraph,) = paragraphs["paragraphs"]
    assert paragraph["num_words"] == 4 and paragraph["sentences"][0]["start"] == first["start"]


async def test_two_channels_are_two_channels(
    client: httpx.AsyncClient, token: Headers, books: Books
) -> None:
    query = {"multichannel": "true", "utterances": "true", "utt_split": 10}
    body = (await listen(client, token, recording(3, channels=2), **query)).json()
    assert body["metadata"]["channels"] == 2
    texts = [one["alternatives"][0]["transcript"] for one in body["results"]["channels"]]
    assert texts == [SCRIPT, SCRIPT]
    assert [one["channel"] for one in body["results"]["utterances"]] == [0, 1]
    assert "speaker" not in body["results"]["channels"][0]["alternatives"][0]["words"][0]
    assert (await books.charged("stt"))[0] == 6000


async def test_a_mono_recording_with_multichannel_is_one_channel(
    client: httpx.AsyncClient, token: Headers, books: Books
) -> None:
    query = {"multichannel": "true", "utterances": "true", "smart_format": "true"}
    body = (await listen(client, token, recording(3), **query)).json()
    assert body["metadata"]["channels"] == 1
    (channel,) = body["results"]["channels"]
    (best,) = channel["alternatives"]
    assert best["transcript"] and "speaker" not in best["words"][0]
    assert {part["channel"] for part in body["results"]["utterances"]} == {0}
    assert (await books.charged("stt"))[0] == 3000


@pytest.mark.in_process  # after a lossy codec Silero does not take the tone for speech
@pytest.mark.parametrize("kind", ["mp3", "flac", "ogg", "webm"])
async def test_the_format_is_found_by_content(
    client: httpx.AsyncClient, token: Headers, kind: str
) -> None:
    answer = await listen(client, token, encode(kind, pcm16_to_float(TALK[44:])))
    assert SCRIPT in answer.json()["results"]["channels"][0]["alternatives"][0]["transcript"]


@pytest.mark.parametrize("encoding", ["linear16", "mulaw", "alaw"])
async def test_raw_samples_are_taken_with_their_encoding_and_rate(
    client: httpx.AsyncClient, token: Headers, encoding: Any
) -> None:
    data = TALK[44:]
    if encoding != "linear16":
        data = encode_g711(pcm16_to_float(data), encoding)
    answer = await listen(client, token, data, encoding=encoding, sample_rate=16_000)
    assert answer.json()["metadata"]["duration"] == pytest.approx(6)
    refused = await listen(client, token, data)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_audio")
    refused = await listen(client, token, data, encoding=encoding)
    assert (refused.status_code, refused.json()["err_code"]) == (400, "Bad Request")
    said = f"sample_rate: is required with encoding={encoding}"
    assert refused.json()["err_msg"] == said
    contained = await listen(client, token, encoding=encoding)  # WAV says its own
    assert contained.json()["metadata"]["duration"] == pytest.approx(6)


async def test_a_form_is_refused_with_what_the_body_is(
    client: httpx.AsyncClient, token: Headers, books: Books
) -> None:
    answer = await client.post("/v1/listen", headers=token, files={"audio": ("a.wav", TALK)})
    assert (answer.status_code, answer.json()["err_code"]) == (400, "Bad Request")
    assert "as the body, not as a form" in answer.json()["err_msg"]
    assert answer.headers["dg-error"].isascii()
    assert await books.charged("stt") == (0, 0)


async def test_a_recording_is_fetched_without_redirects(
    client: httpx.AsyncClient,
    token: Headers,
    services: Services,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = request.path.endswith("talk.wav")
        return web.Response(body=TALK) if found else web.Response(status=302)

    async def fetch(url: object) -> httpx.Response:
        return await client.post("/v1/listen", headers=token, json={"url": url})

    authority = Authority.make(tmp_path)
    async with receiver(authority, answer) as there:
        webhooks: Any = services.platform.webhooks
        monkeypatch.setattr(webhooks, "_allowed", authority.settings().allowed_networks)
        refused = await fetch(there.url)  # the client looks at the address that it dials
        assert "refused_address" in refused.json()["err_msg"]
        monkeypatch.setattr(webhooks, "_settings", authority.settings())
        body = (await fetch(there.url.rstrip("/") + "/talk.wav")).json()
        assert body["metadata"]["sha256"] == hashlib.sha256(TALK).hexdigest()
        redirected = await fetch(there.url.rstrip("/") + "/other")
        assert (redirected.status_code, redirected.json()["error"]) == (400, "invalid_url")
    for wrong in (None, 7, {"a": 1}):
        assert (await fetch(wrong)).status_code == 400


@pytest.mark.in_process  # a real connection sends no length without the body
async def test_a_body_over_the_limit_is_refused_before_it_is_read(
    client: httpx.AsyncClient, token: Headers
) -> None:
    headers = {**token, "Content-Length": str(26 << 20)}
    answer = await client.post("/v1/listen", headers=headers, content=b"x")
    assert (answer.status_code, answer.json()["error"]) == (400, "file_too_large")


async def test_other_options_are_named_and_ignored(
    client: httpx.AsyncClient, token: Headers
) -> None:
    answer = await listen(client, token, filler_words="true", mip_opt_out="true", version="latest")
    assert answer.status_code == 200
    assert set(answer.headers["X-Ignored-Fields"].split(", ")) == {
        *("filler_words", "mip_opt_out", "version")
    }
