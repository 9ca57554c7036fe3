"""Key rotation: all stored data is encrypted under the new key, and nothing is lost."""

import asyncio
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlmodel import Session, select

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.database import Database
from db.files import StoredFile
from db.voices.history import HistoryItem
from db.voices.voices import EnrolledSpeaker, VoiceConsent
from db.webhooks import Event, NewEvent, Webhook, add_event, body_about, secret_about
from models.llm.base import ChatMessage
from pipelines.chat.history import ChatHistory
from pipelines.maintenance.key_rotation import Rotation
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.storage.files import PIECE_BYTES
from pipelines.text.lexicon import Pronunciation
from pipelines.tts.dictionaries import Dictionaries, DictionaryRef
from pipelines.tts.history import details_about
from pipelines.voices.consent_recordings import consent_about
from pipelines.voices.speakers import embedding_about
from tests.db.rows import rows
from tests.db.test_chats import add_workspace
from tests.migrated import sqlite_database
from tests.patience import PATIENCE_S
from tests.pipelines.storage.on_disk import files_in

PLANS = load_yaml(PlansConfig, "plans")
OLD = b64encode(os.urandom(32)).decode()
NEW = b64encode(os.urandom(32)).decode()
SAMPLE = os.urandom(PIECE_BYTES + 10)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as opened:
        yield opened


async def test_all_data_is_encrypted_under_the_new_key(database: Database, tmp_path: Path) -> None:
    workspace_id = await add_workspace(database)
    before = Encryption([OLD])
    chat_id, hook_id = uuid4(), uuid4()
    said, answer = ChatMessage("user", "ostrich", {"name": "x"}), ChatMessage("assistant", "yes")
    history = ChatHistory(database, before, PLANS)
    await history.save(workspace_id, chat_id, [said], answer, "m", None, is_new=True)

    def add_webhook(session: Session) -> None:
        secret = before.encrypt(b"whsec", secret_about(hook_id))
        url, events = "https://a.example", ["tts.completed"]
        session.add(
            Webhook(id=hook_id, workspace_id=workspace_id, url=url, events=events, secret=secret)
        )

    await database.run(add_webhook)
    event = NewEvent("tts.completed", {"text": "ostrich"})
    event_id = await database.run(add_event, workspace_id, event, before.encrypt_text)
    file_id = await files_in(tmp_path, database, before).put(
        workspace_id, "sample", "audio/wav", SAMPLE, None
    )

    entry_of = [Pronunciation(grapheme="ostrich", alias="bird")]
    kept = await Dictionaries(database, before).save(workspace_id, "Birds", entry_of)

    speaker_id, consent_id = uuid4(), uuid4()

    def add_speaker(session: Session) -> None:
        voice = before.encrypt(b"ostrich", embedding_about(speaker_id))
        session.add(
            EnrolledSpeaker(
                id=speaker_id,
                workspace_id=workspace_id,
                name="Ann",
                embedding=voice,
                consent="yes",
                consent_by="user:1",
            )
        )
        session.add(
            VoiceConsent(
                id=consent_id,
                workspace_id=workspace_id,
                name="Ann",
                language="en",
                phrase="yes",
                embedding=before.encrypt(b"ostrich", consent_about(consent_id)),
            )
        )

    await database.run(add_speaker)

    def add_history(session: Session) -> None:
        details = before.encrypt(b"ostrich", details_about("1"))
        session.add(
            HistoryItem(
                id="1",
                workspace_id=workspace_id,
                file_id=file_id,
                source="TTS",
                voice_id="v",
                model_id="m",
                details=details,
            )
        )

    await database.run(add_history)

    both = Encryption([NEW, OLD])
    rotation = Rotation(database, both, files_in(tmp_path, database, both))
    assert set((await rotation.run()).values()) == {1}  # of each kind
    assert set((await rotation.run()).values()) == {0}

    after = Encryption([NEW])
    voice = await database.read(lambda session: session.get_one(EnrolledSpeaker, speaker_id))
    item = await database.read(lambda session: session.get_one(HistoryItem, "1"))
    assert after.decrypt(item.details, details_about("1")) == b"ostrich"
    assert after.decrypt(voice.embedding, embedding_about(speaker_id)) == b"ostrich"
    consent = await database.read(lambda session: session.get_one(VoiceConsent, consent_id))
    assert after.decrypt(consent.embedding, consent_about(consent_id)) == b"ostrich"
    which = DictionaryRef(id=str(kept.id))
    assert (await Dictionaries(database, after).read(workspace_id, which))[1] == entry_of
    messages = await ChatHistory(database, after, PLANS).load(workspace_id, chat_id)
    assert [(m.content, m.extra) for m in messages] == [("ostrich", {"name": "x"}), ("yes", {})]
    chat, _, _ = await ChatHistory(database, after, PLANS).read(workspace_id, chat_id)
    assert chat.title == "ostrich"
    assert await files_in(tmp_path, database, after).read(workspace_id, file_id) == SAMPLE
    [body] = await rows(database, select(Event.body))
    assert body is not None and event_id is not None and "ostrich" not in body
    assert "ostrich" in after.decrypt_text(body, body_about(workspace_id, event_id))
    [encrypted] = await rows(database, select(Webhook.secret).where(Webhook.id == hook_id))
    assert encrypted is not None and after.decrypt(encrypted, secret_about(hook_id)) == b"whsec"


async def test_rotation_without_the_old_key_is_refused(database: Database, tmp_path: Path) -> None:
    workspace_id = await add_workspace(database)
    chat_id, answer = uuid4(), ChatMessage("assistant", "yes")
    history = ChatHistory(database, Encryption([OLD]), PLANS)
    await history.save(
        workspace_id, chat_id, [ChatMessage("user", "hi")], answer, "m", None, is_new=True
    )
    new = Encryption([NEW])
    with pytest.raises(DecryptionError):
        await Rotation(database, new, files_in(tmp_path, database, new)).run()
    assert (await history.load(workspace_id, chat_id))[1].content == "yes"


@pytest.mark.parametrize("row_is_gone", [True, False])
async def test_a_file_deleted_during_its_rotation_is_not_restored(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_is_gone: bool
) -> None:
    workspace_id = await add_workspace(database)
    other = files_in(tmp_path, database, Encryption([OLD]))
    file_id = await other.put(workspace_id, "sample", "audio/wav", SAMPLE, None)
    files = files_in(tmp_path, database, Encryption([NEW, OLD]))
    loop, encrypt = asyncio.get_running_loop(), files._encrypted

    def delete_meanwhile(file: StoredFile, pieces: Iterable[bytes]) -> Iterator[bytes]:
        deleting = other.delete(workspace_id, file_id)
        asyncio.run_coroutine_threadsafe(deleting, loop).result(PATIENCE_S)
        return encrypt(file, pieces)

    if not row_is_gone:  # the deletion has not reached the row yet
        monkeypatch.setattr("pipelines.storage.files.delete_file", lambda session, file_id: None)
    monkeypatch.setattr(files, "_encrypted", delete_meanwhile)
    assert not await files.rotate(file_id)
    assert [path for path in (tmp_path / "files").rglob("*") if path.is_file()] == []
