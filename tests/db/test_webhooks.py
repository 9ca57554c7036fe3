"""The outbox: events are written together with their deliveries, on both databases."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlmodel import Session, select

from db.database import Database, utc_now
from db.webhooks import Delivery, Event, NewEvent, Webhook, add_event, wanted_kinds
from tests.db.test_chats import add_workspace

READY = NewEvent("voice.ready", {"id": "v", "name": "Zoë 😀"})


def plain(text: str, about: str) -> str:
    """In place of encryption: returns the text unchanged."""
    return text


def add_webhook(session: Session, workspace_id: int, /, **fields: Any) -> UUID:
    webhook = Webhook(
        id=uuid4(),
        workspace_id=workspace_id,
        **{"url": "https://example.com/", "events": ["voice.ready"], **fields},
    )
    session.add(webhook)
    return webhook.id


def rows(session: Session) -> tuple[list[Event], list[Delivery]]:
    return list(session.exec(select(Event))), list(session.exec(select(Delivery)))


async def test_no_event_is_written_for_a_workspace_without_webhooks(database: Database) -> None:
    workspace_id = await add_workspace(database)
    assert await database.run(add_event, workspace_id, READY, plain) is None
    assert await database.read(rows) == ([], [])


async def test_each_active_webhook_of_an_event_gets_a_delivery(database: Database) -> None:
    mine, theirs = await add_workspace(database), await add_workspace(database, "c@d.co")
    wanting = {await database.run(add_webhook, mine) for _ in range(2)}
    await database.run(add_webhook, mine, events=["tts.completed"])
    await database.run(add_webhook, mine, status="inactive")
    await database.run(add_webhook, theirs)
    event_id = await database.run(add_event, mine, READY, plain)
    events, deliveries = await database.read(rows)
    assert [event.id for event in events] == [event_id]
    assert event_id and event_id.startswith("evt_") and "." not in event_id
    assert {delivery.webhook_id for delivery in deliveries} == wanting
    assert all(row.status == "pending" and row.next_at <= utc_now() for row in deliveries)


async def test_an_event_body_is_json_of_event_timestamp_and_data(database: Database) -> None:
    workspace_id = await add_workspace(database)
    await database.run(add_webhook, workspace_id)
    await database.run(add_event, workspace_id, READY, plain)
    events, _ = await database.read(rows)
    body = events[0].body
    assert body is not None and "Zoë 😀" in body and ": " not in body
    parsed = json.loads(body)
    assert list(parsed) == ["event", "timestamp", "data"]
    assert parsed["data"] == READY.data and parsed["timestamp"].endswith("Z")


async def test_an_event_is_rolled_back_with_its_transaction(database: Database) -> None:
    workspace_id = await add_workspace(database)
    await database.run(add_webhook, workspace_id)

    def work(session: Session) -> None:
        add_event(session, workspace_id, READY, plain)
        raise RuntimeError("after the event")

    with pytest.raises(RuntimeError):
        await database.run(work)
    assert await database.read(rows) == ([], [])


async def test_wanted_kinds_are_the_events_of_active_webhooks(database: Database) -> None:
    workspace_id = await add_workspace(database)
    await database.run(add_webhook, workspace_id, events=["stt.failed", "voice.ready"])
    await database.run(add_webhook, workspace_id, events=["tts.failed"], status="inactive")
    assert await database.read(wanted_kinds, workspace_id) == {"stt.failed", "voice.ready"}
