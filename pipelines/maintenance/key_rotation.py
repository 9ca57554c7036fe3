"""Key rotation: encrypts all stored data under the newest key, the first of the list."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, SQLModel, col, select

from db.chats import Chat, entries_of
from db.database import Database
from db.files import StoredFile
from db.voices.history import HistoryItem
from db.voices.pronunciations import PronunciationDictionary
from db.voices.voices import EnrolledSpeaker, VoiceConsent
from db.webhooks import Event, Webhook, body_about, secret_about
from pipelines.chat.history import chat_about
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.tts.dictionaries import content_about
from pipelines.tts.history import details_about
from pipelines.voices.consent_recordings import consent_about
from pipelines.voices.speakers import embedding_about

AT_ONCE = 100  # ids

Column = tuple[SQLModel, str, str]  # a row, the name of its column, and the associated data
Columns = Callable[[Session, Any], Iterable[Column]]


@dataclass(eq=False, repr=False)
class Rotation:
    """May run beside the service, be stopped, and run again. Data that expires within a day (stored
    responses, client secrets, audio of events) keeps the old key, which is needed until then."""

    _database: Database
    _encryption: Encryption
    _files: Files

    async def run(self) -> dict[str, int]:
        """Encrypts rows and files again; returns their numbers. Raises DecryptionError for a
        missing key, StorageUnavailable or DatabaseUnavailable."""
        lasting = col(StoredFile.expires_at).is_(None)
        return {
            "chats": await self._each_row(Chat, _in_chat),
            "webhooks": await self._each_row(
                Webhook,
                lambda _, row: [
                    (row, secret, secret_about(row.id)) for secret in ("secret", "old_secret")
                ],
            ),
            "events": await self._each_row(
                Event,
                lambda _, row: [(row, "body", body_about(row.workspace_id, row.id))],
                col(Event.body).is_not(None),
            ),
            "files": await self._each(StoredFile, self._files.rotate, lasting),
            "dictionaries": await self._each_row(
                PronunciationDictionary, _only("content", content_about)
            ),
            "history": await self._each_row(HistoryItem, _only("details", details_about)),
            "speakers": await self._each_row(EnrolledSpeaker, _only("embedding", embedding_about)),
            "consents": await self._each_row(VoiceConsent, _only("embedding", consent_about)),
        }

    async def _each(
        self, table: Any, rotate: Callable[[Any], Awaitable[bool]], *which: ColumnElement[bool]
    ) -> int:
        """Calls `rotate` with each id, in their order; returns how often it changed something."""

        def ids_after(session: Session, last: Any) -> list[Any]:
            after = () if last is None else (table.id > last,)
            query = select(table.id).where(*which, *after).order_by(table.id).limit(AT_ONCE)
            return list(session.exec(query))

        count, last = 0, None
        while ids := await self._database.read(ids_after, last):
            for row_id in ids:
                count += await rotate(row_id)
            last = ids[-1]
        return count

    async def _each_row(self, table: Any, columns: Columns, *which: ColumnElement[bool]) -> int:
        """Locks each row in a transaction of its own, and encrypts its columns again."""

        def change(session: Session, row_id: Any) -> bool:
            row = session.get(table, row_id, with_for_update={"key_share": True})
            if row is None:
                return False  # deleted meanwhile
            return any([self._rotate(*column) for column in columns(session, row)])

        return await self._each(table, lambda one: self._database.run(change, one), *which)

    def _rotate(self, row: SQLModel, column: str, about: str) -> bool:
        before = getattr(row, column)
        if before is None:
            return False
        encryption = self._encryption
        rotate = encryption.rotate_text if isinstance(before, str) else encryption.rotate
        after = rotate(before, about)
        setattr(row, column, after)
        return bool(after != before)


def _only(column: str, about: Callable[[Any], str]) -> Columns:
    return lambda _, row: [(row, column, about(row.id))]


def _in_chat(session: Session, chat: Chat) -> Iterator[Column]:
    yield chat, "title", chat_about(chat.workspace_id, chat.id, "title")
    for entry in entries_of(session, chat.id):
        yield entry, "content", chat_about(chat.workspace_id, chat.id)
