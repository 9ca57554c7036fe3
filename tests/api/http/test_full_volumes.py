"""A full volume under the database, the files or the temporary folder: 503, and nothing is lost."""

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlmodel import Session, select

from api.app import create_app
from api.assemblyai.streams import ASSEMBLYAI_ERRORS
from api.services import Services
from configs.environment import sqlite_url
from configs.settings import Settings
from db.database import make_engine
from db.files import StoredFile, wrong_stored_bytes
from tests.api.in_process import client_of
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.hostile.audio_files import wav
from tests.openapi import document
from tests.plans import raise_plans
from tests.promises.history import check_sums
from tests.volumes import filled, small_volume

DOCUMENT = document()
NOTHING = str(UUID(int=7))  # no object has that id
RECORDING = wav(bytes(2 * 16_000 * 60))  # 1.9 MB
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "Hi."}]}
LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
FILES = {
    "document": b"A sentence of a book. " * 2000,
    "/openai/v1/files": json.dumps(LINE).encode(),
    "/v1/pronunciation-dictionaries/add-from-file": b"<lexicon/>",
}
FIELDS = {
    "/jobs/transcriptions": {},
    "/openai/v1/files": {"purpose": "batch"},
    "/openai/v1/audio/transcriptions": {"model": "whisper-1"},
    "/openai/v1/audio/translations": {"model": "whisper-1"},
    "/v1/speech-to-text": {"model_id": "scribe_v1"},
    "/voices": {"name": "Ada", "language": "en", "gender": "female"},
    "/speakers": {"name": "Ada", "consent": "Yes."},
    "/v1/pronunciation-dictionaries/add-from-file": {"name": "Names"},
}
STATEFUL = {"post /auth/signup", "post /auth/login"}  # answered by what was there before


def every_body() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and arguments of a request to each operation that takes a body."""
    for path, operations in DOCUMENT["paths"].items():
        filled_in = path.replace("{number}", "1")
        for name in ("job_id", "voice_id", "share_id", "session_id", "chat_id"):
            filled_in = filled_in.replace(f"{{{name}}}", NOTHING)
        for method, operation in operations.items():
            for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = content["schema"]
                if media_type == "application/json" and "$ref" in schema:
                    name = schema["$ref"].rpartition("/")[2]
                    (example,) = DOCUMENT["components"]["schemas"][name]["examples"]
                    yield method, filled_in, {"json": example}
                elif media_type == "multipart/form-data":
                    fields = FIELDS.get(path, {})
                    for field, value in schema["properties"].items():
                        is_list = value.get("type") == "array"
                        if (value["items"] if is_list else value).get("format") == "binary":
                            data = FILES.get(path) or FILES.get(field) or RECORDING
                            sent = [(field, ("a.wav", data))] * (3 if is_list else 1)
                            yield method, filled_in, {"data": fields, "files": sent}
    headers = {"Content-Type": "audio/wav"}
    yield "post", "/v1/listen", {"content": RECORDING, "headers": headers}


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_volume(tmp_path / "a%20b?c", 48) as mounted:  # a path that a URL has to quote
        yield mounted


@pytest.fixture(params=["data", "files", "temporary"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """One of the folders is on the small volume; its floor does not refuse before it is full."""
    made = replace(local_settings(tmp_path), free_space_mb=0)
    if request.param == "temporary":
        monkeypatch.setattr(tempfile, "tempdir", str(volume))
        return made
    if request.param == "files":
        return replace(made, storage_url=f"file://{volume / 'files'}")
    return replace(made, data_dir=volume, database_url=sqlite_url(volume / "test.db"))


async def ask(client: httpx.AsyncClient, auth: dict[str, str]) -> dict[str, httpx.Response]:
    answers = {}
    for method, path, arguments in every_body():
        headers = {**auth, **arguments.pop("headers", {})}
        answers[f"{method} {path}"] = await client.request(
            method, path, headers=headers, **arguments
        )
    return answers


async def ask_without_bodies(client: httpx.AsyncClient, auth: dict[str, str]) -> dict[str, int]:
    """The statuses of all reads and deletions but those of the account."""
    statuses = {}
    for path, operations in DOCUMENT["paths"].items():
        for method in {"get", "delete"} & operations.keys():
            if not path.startswith(("/auth/account", "/auth/sessions")):
                filled_in = re.sub(r"{\w*id}", NOTHING, path)
                answer = await client.request(method, filled_in, headers=auth)
                statuses[f"{method} {path}"] = answer.status_code
    return statuses


async def test_a_full_volume_is_503_on_every_route_and_loses_nothing(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    settings: Settings,
    services: Services,
    volume: Path,
) -> None:
    raise_plans(settings.database_url)
    before = await client.post(
        "/jobs/transcriptions", headers=auth, files={"audio": ("a.wav", RECORDING)}
    )
    assert before.status_code == 201, before.text
    with filled(volume):
        full = await ask(client, auth)
        statuses = {name: answer.status_code for name, answer in full.items()}
        assert {name for name, status in statuses.items() if status == 500} == set()
        refused = [answer for answer in full.values() if answer.status_code == 503]
        assert len(refused) >= 3, statuses
        for answer in refused:
            error = answer.json()["error"]
            if answer.request.url.path.startswith(ASSEMBLYAI_ERRORS.paths):
                assert isinstance(error, str)  # a text without a code; the status says it all
            else:
                assert "unavailable" in (error if isinstance(error, str) else error["code"])
            assert int(answer.headers["Retry-After"]) > 0
        kept = await client.get(f"/jobs/{before.json()['id']}", headers=auth)
        assert kept.json()["status"] == "processing"
        for name, status in (await ask_without_bodies(client, auth)).items():
            assert status != 500, name
    again = await ask(client, auth)
    assert {name for name, answer in again.items() if answer.status_code >= 500} == set()
    # What was refused only since there was no room is done now.
    done = {name.rpartition("/")[0] for name, answer in again.items() if answer.is_success}
    assert len(done) > 10
    changed = {name for name, answer in again.items() if answer.status_code != statuses[name]}
    assert {statuses[name] for name in changed - STATEFUL} == {503}
    await services.platform.billing.wait_for_settlements()
    await services.infrastructure.files.delete_expired()
    check_kept(settings)


@pytest.mark.parametrize("free_kb", [100, 3000])
async def test_a_temporary_folder_that_fills_up_truncates_no_answer(
    tmp_path: Path, volume: Path, monkeypatch: pytest.MonkeyPatch, free_kb: int
) -> None:
    settings = replace(local_settings(tmp_path), free_space_mb=0)
    services = local_services(settings)
    key = await services.platform.accounts.ensure_first_workspace()
    raise_plans(settings.database_url)
    text = "A sentence of a long text. " * 40
    asked: dict[str, dict[str, Any]] = {
        "/stt": {"files": {"audio": ("a.wav", RECORDING)}},
        "/openai/v1/audio/transcriptions": {
            "files": {"file": ("a.wav", RECORDING)},
            "data": {"model": "whisper-1"},
        },
        "/v1/listen": {"content": RECORDING, "headers": {"Content-Type": "audio/wav"}},
        "/tts-synthesize": {"json": {"text": text}},
        "/openai/v1/audio/speech": {"json": {"model": "tts-1", "voice": "alloy", "input": text}},
    }
    async with client_of(create_app(services)) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        lengths: dict[str, int] = {}
        for path, arguments in asked.items():
            whole = await client.post(path, **arguments)
            assert whole.status_code == 200, whole.text
            lengths[path] = length_of(whole)
        monkeypatch.setattr(tempfile, "tempdir", str(volume))
        with filled(volume, free_kb * 1000):
            for path, arguments in asked.items():
                answer = await client.post(path, **arguments)
                if answer.status_code == 200:
                    assert length_of(answer) == lengths[path], path
                else:
                    assert answer.status_code == 503, (path, answer.text)
        assert not list(volume.rglob("*"))  # nothing is left there
    services.infrastructure.database.close()


def length_of(answer: httpx.Response) -> int:
    """Of the audio or of the transcribed recording, in whole units."""
    if not answer.headers["content-type"].startswith("application/json"):
        return len(answer.content)
    body = answer.json()
    duration = body.get("duration_seconds") or body.get("duration")
    duration = duration or body.get("metadata", {}).get("duration")
    return round(duration) if duration else len(answer.text)


def check_kept(settings: Settings) -> None:
    """Every row has its file, of its length, and every file its row; sums are right."""
    engine = make_engine(settings.database_url)
    with Session(engine) as session:
        check_sums(session)
        assert wrong_stored_bytes(session) == []
        rows = {row.id: row for row in session.exec(select(StoredFile))}
        folder = Path(settings.storage_url.removeprefix("file://"))
        files = {path.name: path for path in folder.rglob("file_*")}
        assert files.keys() == rows.keys()
        assert all(path.stat().st_size >= rows[name].size for name, path in files.items())
    engine.dispose()
