"""Enrolled speakers over HTTP: consent, recordings, names in transcripts, deletion."""

import asyncio
import math
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pytest
from sqlmodel import select

from api.services import Services
from configs.settings import ConsentNeeded, Settings
from db.audit import AuditEntry
from db.voices.voices import EnrolledSpeaker
from models.stt.base import Transcript, TranscriptionRequest, Word
from pipelines.voices import checks, speakers
from tests.api.local_server import local_settings
from tests.api.native.voices.test_consent import checked_sentences, new_sentence
from tests.api.native.voices.voice_making import enrol
from tests.pipelines.voices.recordings import good_files, recording, wav

Headers = dict[str, str]

__all__ = ["checked_sentences"]  # a fixture


@pytest.fixture
def required() -> ConsentNeeded:
    return "off"


@pytest.fixture
def settings(tmp_path: Any, required: ConsentNeeded) -> Settings:
    return replace(local_settings(tmp_path), require_consent=required)


async def rows(services: Services) -> list[EnrolledSpeaker]:
    query = select(EnrolledSpeaker)
    return await services.infrastructure.database.read(lambda s: list(s.exec(query).all()))


async def listed(client: httpx.AsyncClient, headers: Headers) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/speakers", headers=headers)).json()["data"]
    return found


async def test_only_an_encrypted_embedding_is_kept_of_an_enrolled_speaker(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = await enrol(client, auth)
    assert made.pop("status_code") == 201
    assert set(made) == {"id", "name", "created_at"} and made["name"] == "Ann"
    assert await listed(client, auth) == [made]
    (row,) = await rows(services)
    assert len(row.embedding) == 256 * 4 + 37 and row.consent == "She agreed."
    assert row.consent_by.startswith("key:") and row.consent_address is not None
    (known,) = await services.speech.speakers.known(row.workspace_id, True)
    assert (known.label, known.seconds) == ("Ann", math.inf)
    assert float(np.linalg.norm(known.total)) == pytest.approx(1, abs=1e-5)
    assert known.total.tobytes() not in row.embedding


async def test_a_speaker_is_deleted_with_the_embedding_and_both_are_audited(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = await enrol(client, auth)
    path = f"/speakers/{made['id']}"
    answers = [await client.delete(path, headers=auth) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 404]
    assert answers[1].json()["error"] == "not_found"
    assert await rows(services) == [] == await listed(client, auth)
    query = select(AuditEntry).where(AuditEntry.target == made["id"])
    entries = await services.infrastructure.database.read(lambda s: list(s.exec(query).all()))
    assert [entry.action for entry in entries] == ["speaker.enrolled", "speaker.deleted"]


async def test_speakers_are_erased_with_the_account(
    client: httpx.AsyncClient, other_auth: Headers, services: Services
) -> None:
    await enrol(client, other_auth)
    erased = await client.delete("/auth/account", headers=other_auth)
    assert erased.status_code == 200, erased.text
    assert await rows(services) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"consent": ""}, "consent: state what the speaker agreed to"),
        ({"consent": "   "}, "consent: state what the speaker agreed to"),
        ({"consent": "x" * 2001}, "consent: "),
        ({"consent_token": "nonsense"}, "consent_token: "),
        ({"name": " "}, "name: "),
        ({"name": "x" * 201}, "name: "),
        ({"name": "a\nb"}, "name: "),
    ],
)
async def test_a_speaker_needs_a_name_and_consent(
    client: httpx.AsyncClient, auth: Headers, fields: dict[str, str], message: str
) -> None:
    answer = await enrol(client, auth, None, **fields)
    assert (answer["status_code"], answer["error"]) == (400, "validation_error")
    assert answer["message"].startswith(message)
    assert await listed(client, auth) == []


async def test_a_spoken_consent_is_kept_and_serves_only_its_purpose(
    client: httpx.AsyncClient, auth: Headers, services: Services, checked_sentences: list[str]
) -> None:
    for_voice = await new_sentence(client, auth)
    refused = await enrol(client, auth, consent="", consent_token=for_voice["consent_token"])
    assert refused["status_code"] == 400 and refused["message"].startswith("consent_token: ")
    sentence = await new_sentence(client, auth, purpose="speaker")
    assert "recognise my voice" in sentence["sentence"]
    made = await enrol(client, auth, consent="", consent_token=sentence["consent_token"])
    assert made["status_code"] == 201 and checked_sentences == [sentence["sentence"]]
    assert [row.consent for row in await rows(services)] == [sentence["sentence"]]


@pytest.mark.usefixtures("required")
@pytest.mark.parametrize("required", ["spoken"])
async def test_the_operator_can_require_spoken_consent(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await enrol(client, auth)
    assert answer["status_code"] == 400 and answer["message"].startswith("consent_token: ")


async def test_unusable_recordings_are_refused(client: httpx.AsyncClient, auth: Headers) -> None:
    good = good_files()[0]
    cases: list[tuple[tuple[tuple[str, bytes], ...], str, str]] = [
        ((("short.wav", wav(recording(1, 4))),), "invalid_audio", "'short.wav' is 4.0 seconds"),
        ((("a.wav", wav(recording(1, 7))),), "validation_error", "7.0 seconds in all"),
        ((("long.wav", wav(recording(1, 62))),), "audio_too_long", "'long.wav' is too long"),
        ((("silent.wav", wav(np.zeros(16_000 * 12, np.float32))),), "invalid_audio", "speech"),
        ((("text.wav", b"no audio at all"),), "invalid_audio", "not MP3, WAV, FLAC"),
        ((good, ("again.wav", good[1])), "validation_error", "the same as"),
    ]
    for files, code, message in cases:
        answer = await enrol(client, auth, files)
        assert (answer["status_code"], answer["error"]) == (400, code), (files[0][0], answer)
        assert message in answer["message"], answer
    many = await enrol(client, auth, tuple((f"{n}.wav", good[1]) for n in range(6)))
    assert (many["status_code"], many["error"]) == (400, "invalid_file_count")
    none = await client.post("/speakers", headers=auth, data={"name": "A", "consent": "yes"})
    assert none.status_code == 400
    assert await listed(client, auth) == []


async def test_two_people_in_one_recording_are_refused(
    client: httpx.AsyncClient, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "has_several_speakers", lambda *_: True)  # as in real voices
    answer = await enrol(client, auth)
    assert (answer["status_code"], answer["error"]) == (400, "invalid_audio")
    assert "more than one speaker" in answer["message"]


async def test_names_are_taken_once_and_a_workspace_has_a_limit(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await asyncio.gather(*(enrol(client, auth, name=name) for name in ("Ann", "ANN")))
    assert sorted(one["status_code"] for one in made) == [201, 400]
    assert "name: another speaker" in str(made)
    assert (await enrol(client, other_auth))["status_code"] == 201
    monkeypatch.setattr(speakers, "MAX_SPEAKERS", 1)
    full = await enrol(client, auth, name="Ben")
    assert full["status_code"] == 400 and "at most 1 speakers" in full["message"]


async def test_an_idempotent_request_enrols_once(client: httpx.AsyncClient, auth: Headers) -> None:
    headers = auth | {"Idempotency-Key": "once"}
    made = [await enrol(client, headers) for _ in range(2)]
    assert made[0] == made[1] and len(await listed(client, auth)) == 1


async def test_files_name_known_speakers(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, speech_wav: bytes
) -> None:
    made = await enrol(client, auth, (("me.wav", wav(recording(1, 12))),))
    theirs = await enrol(client, other_auth)

    async def transcribe(wanted: Any, **fields: str) -> httpx.Response:
        data = {"known_speakers": wanted, **fields}
        return await client.post("/stt", headers=auth, data=data, files={"audio": speech_wav})

    for wanted in ("true", made["id"], [made["id"], made["id"]]):
        body = (await transcribe(wanted)).json()
        assert [one["speaker"] for one in body["utterances"]] == ["Ann"], body
    body = (await transcribe("true", timestamps="true")).json()
    assert {word["speaker"] for word in body["words"]} == {"Ann"}
    assert "utterances" not in (await transcribe("false")).json()
    for unknown in (theirs["id"], str(uuid4()), "me", "' OR 1=1 --", ["true", "true"]):
        answer = await transcribe(unknown)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found"), unknown
        assert answer.json()["message"].startswith("known_speakers: ")
    for wrong in ("x" * 41, ["me"] * 101):
        answer = await transcribe(wrong)
        assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_labels_of_known_speakers_stay_where_texts_are_masked(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    speech_wav: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await enrol(client, auth, (("me.wav", wav(recording(1, 12))),), name="Xanthe Quill")
    transcriber = services.speech.transcription.pipeline._transcriber
    hear = transcriber.transcribe

    async def introduce(request: TranscriptionRequest) -> Transcript:
        heard, said = await hear(request), "Hi, my name is Xanthe Quill."
        words = [Word(one, at / 4, (at + 1) / 4, 0.9) for at, one in enumerate(said.split())]
        (segment,) = heard.segments
        return replace(heard, segments=(replace(segment, text=said, words=tuple(words)),))

    monkeypatch.setattr(transcriber, "transcribe", introduce)
    for form in ("json", "text", "srt", "vtt"):
        data = {"known_speakers": "true", "redact": "name", "response_format": form}
        answer = await client.post(
            "/stt", headers=auth, data=data, files={"audio": speech_wav}, timeout=60
        )
        assert answer.text.count("[NAME]") == (2 if form == "json" else 1), answer.text
        assert answer.text.count("Xanthe Quill") == 1  # the label
