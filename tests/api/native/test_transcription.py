"""POST /stt and GET /stt/languages over the scripted engine."""

import tempfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from api.services import Services
from models.base import ModelInfo
from models.stt.base import STT_SAMPLE_RATE, Segment, Transcript, TranscriptionRequest, Word
from pipelines.audio.levels import QUIET_WARNING
from tests.api.disconnects import send_and_disconnect
from tests.api.money import Books
from tests.hostile.audio_files import CONTAINERS, delayed, encode, wav

Headers = dict[str, str]
SCRIPT = "the quick brown fox"


async def send(
    client: httpx.AsyncClient, auth: Headers, data: bytes, name: str = "a.wav", **fields: Any
) -> httpx.Response:
    return await client.post("/stt", headers=auth, files={"audio": (name, data)}, data=fields)


async def test_transcription_returns_text_language_confidence_and_duration(
    client: httpx.AsyncClient, auth: Headers, speech: np.ndarray, speech_wav: bytes
) -> None:
    answer = await send(client, auth, speech_wav)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body) == {"text", "language", "confidence", "duration"}
    assert body["text"] == SCRIPT
    assert body["language"] == "en"
    assert 0 < body["confidence"] <= 1
    assert body["duration"] == pytest.approx(len(speech) / STT_SAMPLE_RATE, abs=0.01)


@pytest.mark.parametrize("kind", ["mp3", "wav", "flac", "m4a"])
async def test_the_audio_format_is_detected_by_content_not_by_filename(
    client: httpx.AsyncClient, auth: Headers, speech: np.ndarray, kind: str
) -> None:
    answer = await send(client, auth, encode(kind, speech), "file.txt")
    assert (answer.status_code, answer.json().get("text")) == (200, SCRIPT)


async def test_timestamps_add_words_to_the_answer(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    body = (await send(client, auth, speech_wav, timestamps="true", language="de")).json()
    assert body["language"] == "de"
    assert [word["word"] for word in body["words"]] == SCRIPT.split()
    assert set(body["words"][0]) == {"word", "start", "end", "confidence"}
    assert body["words"][-1]["end"] <= body["duration"] + 0.01


@pytest.mark.parametrize("kind", ["ogg", "m4a", "webm"])
@pytest.mark.parametrize(
    ("from_s", "gap_s", "later_s"),
    [(2.0, 10.0, 10.0), (0.0, 4.0, 4.0), (2.0, 0.05, 0), (2.0, 90.0, 0)],
)
async def test_words_after_a_gap_in_a_recording_have_the_times_of_players(
    client: httpx.AsyncClient,
    auth: Headers,
    speech: np.ndarray,
    kind: str,
    from_s: float,
    gap_s: float,
    later_s: float,
) -> None:
    pcm = np.concatenate([np.zeros(3 * STT_SAMPLE_RATE, np.float32), speech])
    data = encode(kind, pcm)
    answers = []
    for body in (data, delayed(data, CONTAINERS[kind][0], from_s, gap_s)):
        answers.append((await send(client, auth, body, timestamps="true")).json())
    for name in ("start", "end"):
        before, after = (answer["words"][0][name] for answer in answers)
        assert after - before == pytest.approx(later_s, abs=0.1)
    assert answers[1]["duration"] - answers[0]["duration"] == pytest.approx(later_s, abs=0.1)


@pytest.mark.parametrize("model", ["general", "phone_call", "meeting", "medical"])
async def test_every_model_name_transcribes(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes, model: str
) -> None:
    answer = await send(client, auth, speech_wav, model=model)
    assert (answer.status_code, answer.json().get("text")) == (200, SCRIPT)


@pytest.mark.parametrize(
    ("response_format", "media_type", "start"),
    [
        ("text", "text/plain", SCRIPT),
        ("srt", "application/x-subrip", "1\n00:00:"),
        ("vtt", "text/vtt", "WEBVTT\n\n00:00:"),
    ],
)
async def test_text_srt_and_vtt_response_formats(
    client: httpx.AsyncClient,
    auth: Headers,
    speech_wav: bytes,
    response_format: str,
    media_type: str,
    start: str,
) -> None:
    answer = await send(client, auth, speech_wav, response_format=response_format)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(media_type)
    assert answer.text.startswith(start)


@pytest.mark.parametrize("decibels", [-60, -70, -90, -120])
async def test_a_very_quiet_recording_is_right_or_empty_and_has_a_warning(
    client: httpx.AsyncClient, auth: Headers, speech: np.ndarray, decibels: int
) -> None:
    data = wav(
        (speech * 10 ** (decibels / 20) * 32767).astype("<i2").tobytes(), rate=STT_SAMPLE_RATE
    )
    body = (await send(client, auth, data)).json()
    assert body["text"] in (SCRIPT, "")
    assert body["warnings"] == [QUIET_WARNING]
    for response_format in ("text", "srt", "vtt"):
        answer = await send(client, auth, data, response_format=response_format)
        assert answer.headers["warning"] == f'299 - "{QUIET_WARNING}"'


@pytest.mark.parametrize("response_format", ["text", "srt", "vtt"])
async def test_audible_recordings_have_no_warning(
    client: httpx.AsyncClient, auth: Headers, speech: np.ndarray, response_format: str
) -> None:
    data = wav((speech * 10 ** (-30 / 20) * 32767).astype("<i2").tobytes(), rate=STT_SAMPLE_RATE)
    answer = await send(client, auth, data, response_format=response_format)
    assert "warning" not in answer.headers


async def test_speaker_labels_add_utterances_with_speakers(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    body = (await send(client, auth, speech_wav, speaker_labels="true")).json()
    assert "words" not in body
    (utterance,) = body["utterances"]
    assert set(utterance) == {"speaker", "start", "end", "text"}
    assert (utterance["speaker"], utterance["text"]) == ("A", SCRIPT)
    assert 0 <= utterance["start"] < utterance["end"] <= body["duration"] + 0.01
    body = (await send(client, auth, speech_wav, speaker_labels="true", timestamps="true")).json()
    assert {word["speaker"] for word in body["words"]} == {"A"}
    assert "".join(one["text"] for one in body["utterances"]) == body["text"]


@pytest.mark.parametrize(
    ("response_format", "line"),
    [("text", f"A: {SCRIPT}\n"), ("srt", f"A: {SCRIPT}\n"), ("vtt", f"<v A>{SCRIPT}\n")],
)
async def test_every_response_format_names_the_speakers(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes, response_format: str, line: str
) -> None:
    fields = {"speaker_labels": "true", "response_format": response_format}
    assert line in (await send(client, auth, speech_wav, **fields)).text


async def test_silence_has_no_utterances(client: httpx.AsyncClient, auth: Headers) -> None:
    body = (await send(client, auth, wav(b"\0" * 32_000, rate=8000), speaker_labels="true")).json()
    assert (body["text"], body["utterances"]) == ("", [])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (wav(b""), "invalid_audio"),
        (wav(b"\0" * 2 * 4000 * 601, rate=4000), "audio_too_long"),
        (b"\0" * (25 * 2**20 + 1), "file_too_large"),
        (b"\0" * (26 * 2**20), "file_too_large"),
    ],
)
async def test_invalid_and_oversized_audio_is_refused(
    client: httpx.AsyncClient, auth: Headers, data: bytes, error: str
) -> None:
    answer = await send(client, auth, data)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    again: dict[str, Any] = {"files": {"file": data}, "data": {"model": "whisper-1"}}
    other = await client.post("/openai/v1/audio/transcriptions", headers=auth, **again)
    assert other.status_code == 400
    for message in (answer.json()["message"], other.json()["error"]["message"]):
        assert ("/jobs/transcriptions" in message) == (error != "invalid_audio")


class Swearing:
    """Hears the same in any audio."""

    def __init__(self) -> None:
        self.asked: list[TranscriptionRequest] = []

    async def describe(self) -> ModelInfo:
        return ModelInfo("svc/fake", "stt", "fake", "us", 0, languages=("en",))

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        self.asked.append(request)
        said = "Shit, it costs nine hundred euros."
        words = [Word(word, at / 9, (at + 1) / 9, 0.9) for at, word in enumerate(said.split())]
        timed = tuple(words) if request.options.words else ()
        return Transcript("en", 0.9, (Segment(said, 0.0, 0.7, -0.1, 0.0, timed),))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "Shit, it costs nine hundred euros."),
        ({"numerals": "true"}, "Shit, it costs 900 euros."),
        ({"profanity_filter": "1", "punctuate": "true"}, "S***, it costs nine hundred euros."),
        ({"punctuate": "false"}, "shit it costs nine hundred euros"),
    ],
)
async def test_options_change_how_the_text_is_written(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    speech_wav: bytes,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, str],
    text: str,
) -> None:
    pipeline = services.speech.transcription.pipeline
    monkeypatch.setattr(pipeline, "_transcriber", Swearing())
    body = (await send(client, auth, speech_wav, timestamps="true", **fields)).json()
    assert body["text"] == " ".join(word["word"] for word in body["words"]) == text


async def test_key_terms_reach_the_engine_without_spaces(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    speech_wav: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hearing = Swearing()
    monkeypatch.setattr(services.speech.transcription.pipeline, "_transcriber", hearing)
    for name in ("keyterms", "keyterms[]"):
        terms: dict[str, Any] = {name: [" Kaczmarek ", "Łódź"]}
        answer = await send(client, auth, speech_wav, **terms)
        assert answer.status_code == 200, answer.text
        assert "x-ignored-fields" not in answer.headers
    assert {asked.options.keyterms for asked in hearing.asked} == {("Kaczmarek", "Łódź")}


async def test_a_form_without_audio_is_refused(client: httpx.AsyncClient, auth: Headers) -> None:
    answer = await client.post("/stt", headers=auth, files={"other": b"x"})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")
    answer = await client.post("/stt", headers=auth, json={})
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_media_type")


async def test_languages_have_native_names(client: httpx.AsyncClient, auth: Headers) -> None:
    languages = (await client.get("/stt/languages", headers=auth)).json()["languages"]
    german = next(one for one in languages if one["code"] == "de")
    assert german == {
        "code": "de",
        "name": "German",
        "native_name": "Deutsch",
        "grade": None,
        "supported_models": ["general", "phone_call", "meeting", "medical"],
    }


async def test_a_disconnect_during_the_upload_leaves_no_temporary_file(
    app: FastAPI, auth: Headers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent = httpx.Request("POST", "http://test/stt", files={"audio": b"RIFF"}, headers=auth)
    assert await send_and_disconnect(app, sent) == 499
    assert not list(tmp_path.glob("antiphon-upload-*"))


def stereo(left: np.ndarray, right: np.ndarray) -> bytes:
    both = np.stack([left, right], axis=1) * 32767
    return wav(both.astype("<i2").tobytes(), rate=STT_SAMPLE_RATE, channels=2)


async def test_two_channels_are_two_speakers(
    client: httpx.AsyncClient, auth: Headers, books: Books, speech: np.ndarray
) -> None:
    quiet = np.zeros(len(speech) + STT_SAMPLE_RATE, np.float32)
    one, other = np.concatenate([speech, quiet]), np.concatenate([quiet, speech])
    for left, right, speakers in ((one, other, ["A", "B"]), (other, one, ["B", "A"])):
        sent = stereo(left, right)
        body = (await send(client, auth, sent, multichannel="true", timestamps="true")).json()
        assert [turn["speaker"] for turn in body["utterances"]] == speakers
        assert [turn["text"] for turn in body["utterances"]] == [SCRIPT, SCRIPT]
        assert body["text"] == f"{SCRIPT} {SCRIPT}"
        starts = [turn["start"] for turn in body["utterances"]]
        assert starts[0] < 1 < len(speech) / STT_SAMPLE_RATE < starts[1]
        assert [word["speaker"] for word in body["words"]] == [
            speaker for speaker in speakers for _ in SCRIPT.split()
        ]
    seconds = len(one) / STT_SAMPLE_RATE
    assert body["duration"] == pytest.approx(seconds, abs=0.01)
    assert (await books.charged("stt"))[0] == pytest.approx(2 * 2 * seconds * 1000, abs=8)


async def test_one_silent_channel_has_no_speaker(
    client: httpx.AsyncClient, auth: Headers, speech: np.ndarray
) -> None:
    quiet = np.zeros(len(speech), np.float32)
    body = (await send(client, auth, stereo(quiet, speech), multichannel="1")).json()
    assert [turn["speaker"] for turn in body["utterances"]] == ["B"]
    assert "warnings" not in body
    body = (await send(client, auth, stereo(quiet, quiet), multichannel="1")).json()
    assert (body["text"], body["utterances"], body["warnings"]) == ("", [], [QUIET_WARNING])


async def test_multichannel_needs_two_channels(
    client: httpx.AsyncClient, auth: Headers, books: Books, speech_wav: bytes
) -> None:
    answer = await send(client, auth, speech_wav, multichannel="true")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_audio")
    assert "two" in answer.json()["message"]
    assert await books.charged("stt") == (0, 0)
