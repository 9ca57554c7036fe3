"""Key rotation: encrypts all stored data under the newest key, the first of the list."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement
from sqlmodel import Session, SQLModel, col, select

from db.chats import Chat, entries_of
from db.database import Database
from db.files import StoredFile
from db.voices.pronunciations import PronunciationDictionary
from db.voices.voices import EnrolledSpeaker
from db.webhooks import Event, Webhook, body_about
from pipelines.chat.history import chat_about
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.tts.dictionaries import content_about
from pipelines.voices.speakers import embedding_about
from pipelines.webhooks.registration import secret_about

AT_ONCE = 100  # ids


@dataclass(frozen=True, slots=True)
class Rotated:
    """The numbers of rows and files that were encrypted again."""

    chats: int
    webhooks: int
    events: int
    files: int
    dictionaries: int
    speakers: int


class Rotation:
    """May run beside the service, be stopped, and run again.

    Data that expires within a day (stored responses, client secrets, the audio of events) is not
    encrypted again: the old key must be kept for that day.
    """

    def __init__(self, database: Database, encryption: Encryption, files: Files) -> None:
        self._database = database
        self._encryption = encryption
        self._files = files

    async def run(self) -> Rotated:
        """Raises DecryptionError for a missing key, StorageUnavailable, DatabaseUnavailable."""
        return Rotated(
            chats=await self._each(Chat, self._in_row(Chat, self._rotate_chat)),
            webhooks=await self._each(Webhook, self._in_row(Webhook, self._rotate_webhook)),
            events=await self._each(
                Event, self._in_row(Event, self._rotate_event), col(Event.body).is_not(None)
            ),
            files=await self._each(
                StoredFile, self._files.rotate, col(StoredFile.expires_at).is_(None)
            ),
            dictionaries=await self._each_bytes(PronunciationDictionary, "content", content_about),
            speakers=await self._each_bytes(EnrolledSpeaker, "embedding", embedding_about),
        )

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

    async def _each_bytes(self, table: Any, column: str, about: Callable[[UUID], str]) -> int:
        def rotate(_session: Session, row: Any) -> bool:
            before = getattr(row, column)
            setattr(row, column, self._encryption.rotate(before, about(row.id)))
            return getattr(row, column) is not before

        return await self._each(table, self._in_row(table, rotate))

    def _in_row(
        self, table: Any, rotate: Callable[[Session, Any], bool]
    ) -> Callable[[Any], Awaitable[bool]]:
        """Calls `rotate` with the locked row of an id, in a transaction of its own."""

        def change(session: Session, row_id: Any) -> bool:
            row = session.get(table, row_id, with_for_update={"key_share": True})
            return row is not None and rotate(session, row)  # None: deleted meanwhile

        async def in_row(row_id: Any) -> bool:
            return await self._database.run(change, row_id)

        return in_row

    def _rotate_chat(self, session: Session, chat: Chat) -> bool:
        owner = (chat.workspace_id, chat.id)
        changed = [self._rotate_text(chat, "title", chat_about(*owner, "title"))]
        for entry in entries_of(session, chat.id):
            changed.append(self._rotate_text(entry, "content", chat_about(*owner)))
        return any(changed)

    def _rotate_webhook(self, _session: Session, webhook: Webhook) -> bool:
        before = (webhook.secret, webhook.old_secret)
        about = secret_about(webhook.id)
        webhook.secret, webhook.old_secret = (
            None if secret is None else self._encryption.rotate(secret, about) for secret in before
        )
        return (webhook.secret, webhook.old_secret) != before

    def _rotate_event(self, _session: Session, event: Event) -> bool:
        about = body_about(event.workspace_id, event.id)
        return event.body is not None and self._rotate_text(event, "body", about)

    def _rotate_text(self, row: SQLModel, column: str, about: str) -> bool:
        before = getattr(row, column)
        setattr(row, column, self._encryption.rotate_text(before, about))
        return getattr(row, column) is not before
