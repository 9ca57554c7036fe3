"""Key rotation: encrypts all stored data under the newest key, which was put before the others."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from db.chats import Chat, ChatEntry
from db.database import Database
from db.rotation import (
    change_chat,
    change_event,
    change_webhook,
    chats_after,
    events_after,
    lasting_files_after,
    webhooks_after,
)
from db.webhooks import Event, Webhook, body_about
from pipelines.chat.encryption import ChatEncryption
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.webhooks.registration import secret_about

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many rows and files were encrypted again."""

    chats: int
    webhooks: int
    events: int
    files: int


class Rotation:
    """May run beside the service, be stopped, and run again.

    What expires within a day (answers, the audio of events) is left as it is: the old key must stay
    for that day.
    """

    def __init__(self, database: Database, sealer: Encryption, files: Files) -> None:
        self._database = database
        self._sealer = sealer
        self._chats = ChatEncryption(sealer)
        self._files = files

    async def run(self) -> Rotated:
        """Raises DecryptionError for a missing key, StorageUnavailable, DatabaseUnavailable."""

        async def ids_of_chats(last: UUID | None) -> list[UUID]:
            return await self._database.read(chats_after, last)

        async def ids_of_webhooks(last: UUID | None) -> list[UUID]:
            return await self._database.read(webhooks_after, last)

        async def ids_of_events(last: str | None) -> list[str]:
            return await self._database.read(events_after, last)

        return Rotated(
            chats=await _each(ids_of_chats, self._rotate_chat),
            webhooks=await _each(ids_of_webhooks, self._rotate_webhook),
            events=await _each(ids_of_events, self._rotate_event),
            files=await self._rotate_files(),
        )

    async def _rotate_chat(self, chat_id: UUID) -> bool:
        return await self._database.run(change_chat, chat_id, self._seal_chat)

    def _seal_chat(self, chat: Chat, entries: list[ChatEntry]) -> bool:
        changed = False
        sealer, workspace_id = self._chats, chat.workspace_id
        if not sealer.is_newest(chat.title):
            title = sealer.open_title(workspace_id, chat.id, chat.title)
            chat.title = sealer.seal_title(workspace_id, chat.id, title)
            changed = True
        for entry in entries:
            if not sealer.is_newest(entry.content):
                opened = sealer.open_message(workspace_id, chat.id, entry.content, entry.extra)
                entry.content = sealer.seal_message(workspace_id, chat.id, *opened)
                entry.extra = {}
                changed = True
        return changed

    async def _rotate_webhook(self, webhook_id: UUID) -> bool:
        return await self._database.run(change_webhook, webhook_id, self._seal_webhook)

    def _seal_webhook(self, webhook: Webhook) -> bool:
        before = (webhook.secret, webhook.old_secret)
        about = secret_about(webhook.id)
        webhook.secret, webhook.old_secret = (
            None if secret is None else self._sealer.rotate(secret, about) for secret in before
        )
        return (webhook.secret, webhook.old_secret) != before

    async def _rotate_event(self, event_id: str) -> bool:
        return await self._database.run(change_event, event_id, self._seal_event)

    def _seal_event(self, event: Event) -> bool:
        if event.body is None or self._sealer.is_newest_text(event.body):
            return False
        about = body_about(event.workspace_id, event.id)
        event.body = self._sealer.seal_text(self._sealer.open_text(event.body, about), about)
        return True

    async def _rotate_files(self) -> int:
        count, last = 0, None
        while files := await self._database.read(lasting_files_after, last):
            for file in files:
                count += await self._files.rotate(file)
            last = files[-1].id
        return count


async def _each(
    page_after: Callable[[T | None], Awaitable[list[T]]], rotate: Callable[[T], Awaitable[bool]]
) -> int:
    count, last = 0, None
    while page := await page_after(last):
        for one in page:
            count += await rotate(one)
        last = page[-1]
    return count
