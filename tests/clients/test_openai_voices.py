"""Consent recordings and custom voices with OpenAI's official client."""

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from sqlmodel import select

from api.services import Services
from configs.load import load_yaml
from configs.schema.voices import ConsentConfig
from db.audit import AuditEntry
from db.voices.voices import Voice
from models.registry import STT, load_model
from models.weights.store import WeightStore
from tests.api.local_server import Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.native.voices.voice_making import finish
from tests.engines import SCRIPTED
from tests.engines.scripted import ScriptedConfig, ScriptedEngine
from tests.local_ports import LocalSTTModel
from tests.pipelines.voices.recordings import encoded, recording, wav

PHRASE = load_yaml(ConsentConfig, "consent").sentences["en"].phrase


@cache
def consent_file() -> tuple[str, bytes]:
    return "consent.ogg", encoded(recording(9, 7), "ogg")


@cache
def sample_file() -> tuple[str, bytes]:
    return "sample.ogg", encoded(recording(1, 20), "ogg")  # OpenAI allows 30 s


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Services:
    """Services whose recogniser hears the consent phrase in all speech."""
    store = WeightStore(Path("unused"))
    _, info = load_model(STT, SCRIPTED, store)
    config = ScriptedConfig(engine="scripted", text=PHRASE, **info_fields(info))
    transcriber = LocalSTTModel(ScriptedEngine(config, store), info)
    settings = local_settings(tmp_path_factory.mktemp("voices"))
    return local_services(settings, transcriber=transcriber)


def info_fields(info: Any) -> dict[str, Any]:
    return {"id": info.id, "owned_by": info.owned_by, "created": info.created}


@pytest.fixture(scope="module")
def server(services: Services) -> Iterator[Server]:
    with serve_services(services) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key, max_retries=0) as opened:
        yield opened


def checked(answer: Any) -> Any:
    """The answer, after it was validated as the type that the client declares."""
    type(answer).model_validate(answer.model_dump(), strict=True)
    return answer


def refused(error: type[openai.APIStatusError], work: Any, **fields: Any) -> dict[str, Any]:
    with pytest.raises(error) as raised:
        work(**fields)
    body: Any = raised.value.body
    return dict(body)


def test_consents_are_created_listed_renamed_and_deleted(
    client: OpenAI, services: Services
) -> None:
    consents = client.audio.voice_consents
    made = [
        checked(consents.create(name=name, language="en-US", recording=consent_file()))
        for name in ("Ann", "Bea", "Cid")
    ]
    assert [consent.id for consent in consents.list(limit=2)] == [one.id for one in made[::-1]]
    page = consents.list(limit=1, after=made[1].id)
    assert [consent.name for consent in page.data] == ["Ann"] and not page.has_more
    assert checked(consents.update(made[0].id, name="Anna")).name == "Anna"
    shown = checked(consents.retrieve(made[0].id))
    assert (shown.name, shown.language, shown.object) == ("Anna", "en-US", "audio.voice_consent")
    assert checked(consents.delete(made[1].id)).deleted
    assert [consent.name for consent in consents.list(after=made[1].id)] == ["Anna"]
    for consent in (made[0], made[2]):
        assert checked(consents.delete(consent.id)).deleted
    for work in (consents.retrieve, consents.delete):
        assert refused(openai.NotFoundError, work, consent_id=made[0].id)["code"] == "not_found"
    assert consents.list().data == []
    query = select(AuditEntry.action).where(AuditEntry.target == made[0].id)
    entries = services.infrastructure.database.read(lambda rows: rows.exec(query).all())
    actions = ["consent.recorded", "consent.renamed", "consent.deleted"]
    assert asyncio.run(entries) == actions


def test_recordings_without_consent_are_refused_with_their_field(
    client: OpenAI, tone_server: Server
) -> None:
    create = client.audio.voice_consents.create
    for fields, param, words in (
        ({"language": "xx"}, "language", "available: en, de"),
        ({"name": " "}, "name", ""),
        ({"recording": ("a.wav", b"text")}, "recording", "a.wav"),
        ({"recording": ("a.wav", wav(recording(9, 31)))}, "recording", "2 to 30 seconds"),
        ({"recording": ("a.wav", wav(recording(9, 1)))}, "recording", "2 to 30 seconds"),
    ):
        given: Any = {"name": "Ann", "language": "en", "recording": consent_file()} | fields
        body = refused(openai.BadRequestError, create, **given)
        assert body["param"] == param and words in body["message"], body
    with OpenAI(base_url=f"{tone_server.url}/openai/v1", api_key=tone_server.key) as fox:
        other = fox.audio.voice_consents.create  # whose speaker is heard to say something else
        body = refused(
            openai.BadRequestError, other, name="Ann", language="en", recording=consent_file()
        )
    assert body["param"] == "recording" and PHRASE in body["message"]


# The client opens the socket of an agent in a way that websockets calls deprecated.
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
def test_a_voice_needs_its_speakers_consent_and_speaks_when_it_is_built(
    client: OpenAI, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = client.audio.voices.create
    consent = client.audio.voice_consents.create(
        name="Ann", language="en", recording=consent_file()
    )
    given: Any = {"name": "Ann", "consent": consent.id, "audio_sample": sample_file()}
    short = ("short.wav", wav(recording(1, 8)))
    body = refused(openai.BadRequestError, create, **given | {"audio_sample": short})
    assert body["param"] == "audio_sample"
    assert body["message"] == "audio_sample: 8.0 seconds in all; at least 10 are needed"
    body = refused(openai.NotFoundError, create, **given | {"consent": "cons_1234"})
    assert (body["param"], body["code"]) == ("consent", "not_found")
    body = refused(openai.BadRequestError, create, name="Ann", type="prompt", prompt="Warm.")
    assert body["param"] == "type"
    with monkeypatch.context() as spoken:
        spoken.setattr(services.voices.custom.consent, "needed", "spoken")
        assert refused(openai.BadRequestError, create, **given)["param"] == "consent_token"
    voice = checked(create(**given))
    assert (voice.name, voice.object, voice.type) == ("Ann", "audio.voice", "audio_sample")

    def speak(wanted: Any) -> bytes:
        speech = client.audio.speech
        return speech.create(model="tts-1", voice=wanted, input="Hello.").content

    assert refused(openai.BadRequestError, speak, wanted={"id": voice.id})["code"] == (
        "voice_not_ready"
    )
    row: Voice = asyncio.run(finish(services))
    assert str(row.id) == voice.id and row.consent == PHRASE and row.consent_at
    assert speak({"id": voice.id}).startswith(b"ID3") and speak("ann").startswith(b"ID3")
    chat = client.chat.completions.create(
        model="svc/echo",
        messages=[{"role": "user", "content": "Hello there."}],
        modalities=["text", "audio"],
        audio={"voice": {"id": voice.id}, "format": "wav"},
    )
    assert chat.choices[0].message.audio
    with client.realtime.connect(model="svc/echo") as agent:
        agent.session.update(
            session={"type": "realtime", "audio": {"output": {"voice": {"id": voice.id}}}}
        )
        updated: Any = next(e for e in agent if e.type in ("session.updated", "error"))
    assert updated.type == "session.updated" and voice.id in str(updated.session.audio.output.voice)
    client.audio.voice_consents.delete(consent.id)
    deleted = checked(client.audio.voices.delete(voice.id))
    assert (deleted.object, deleted.deleted) == ("audio.voice.deleted", True)
    assert refused(openai.NotFoundError, client.audio.voices.delete, voice_id=voice.id)
