"""Goes through all encrypted data, a few rows at a time, for key rotation."""

from collections.abc import Callable
from uuid import UUID

from sqlmodel import Session, col, select

from db.chats import Chat, ChatEntry
from db.files import StoredFile
from db.webhooks import Event, Webhook

AT_ONCE = 100


def chats_after(session: Session, last: UUID | None) -> list[UUID]:
    """The next chats in the order of their ids; empty after the last."""
    query = select(Chat.id).order_by(col(Chat.id)).limit(AT_ONCE)
    return list(session.exec(query if last is None else query.where(col(Chat.id) > last)))


def change_chat(
    session: Session, chat_id: UUID, change: Callable[[Chat, list[ChatEntry]], bool]
) -> bool:
    """Whether `change` changed rows of the chat; False also when it was deleted meanwhile."""
    chat = session.get(Chat, chat_id, with_for_update=True)
    if chat is None:
        return False
    entries = session.exec(
        select(ChatEntry).where(ChatEntry.chat_id == chat_id).order_by(col(ChatEntry.position))
    )
    return change(chat, list(entries))


def webhooks_after(session: Session, last: UUID | None) -> list[UUID]:
    """As `chats_after`."""
    query = select(Webhook.id).order_by(col(Webhook.id)).limit(AT_ONCE)
    return list(session.exec(query if last is None else query.where(col(Webhook.id) > last)))


def change_webhook(session: Session, webhook_id: UUID, change: Callable[[Webhook], bool]) -> bool:
    """As `change_chat`."""
    webhook = session.get(Webhook, webhook_id, with_for_update=True)
    return webhook is not None and change(webhook)


def events_after(session: Session, last: str | None) -> list[str]:
    """As `chats_after`, of the events that still have a body."""
    query = select(Event.id).where(col(Event.body).is_not(None)).order_by(col(Event.id))
    query = query.limit(AT_ONCE)
    return list(session.exec(query if last is None else query.where(col(Event.id) > last)))


def change_event(session: Session, event_id: str, change: Callable[[Event], bool]) -> bool:
    """As `change_chat`."""
    event = session.get(Event, event_id, with_for_update={"key_share": True})
    return event is not None and change(event)


def lasting_files_after(session: Session, last: str | None) -> list[StoredFile]:
    """As `chats_after`, of the files that do not expire."""
    query = select(StoredFile).where(col(StoredFile.expires_at).is_(None))
    query = query.order_by(col(StoredFile.id)).limit(AT_ONCE)
    return list(session.exec(query if last is None else query.where(col(StoredFile.id) > last)))
