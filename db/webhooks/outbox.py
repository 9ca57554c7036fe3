"""Events on their way out: written in the transaction that makes them happen."""

import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args
from uuid import UUID, uuid4

from sqlmodel import Session, col, select

from db.columns import utc_now
from db.tables import Workspace
from db.webhooks.tables import Delivery, Event, Webhook

EventKind = Literal[
    "tts.completed",
    "tts.failed",
    "stt.completed",
    "stt.failed",
    "voice.created",
    "voice.ready",
    "voice.failed",
]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)
Seal = Callable[[str, str], str]
"""Makes what is stored of a text, bound to what it is about: bodies hold what users said."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something that happened in a workspace, and what its receivers are told."""

    kind: EventKind
    data: dict[str, Any]


def body_about(workspace_id: int, event_id: str) -> str:
    """What the sealed body of an event is bound to."""
    return f"event:{workspace_id}:{event_id}"


def add_event(session: Session, workspace_id: int, event: NewEvent, seal: Seal) -> str | None:
    """The id of the event, with a delivery for each active webhook that wants its kind.

    None, and nothing written, when there is no such webhook.
    """
    wanting = _wanting_webhooks(session, workspace_id, event.kind)
    if not wanting:
        return None
    return write_event(session, workspace_id, event, wanting, seal)[0].event_id


def write_event(
    session: Session, workspace_id: int, event: NewEvent, webhook_ids: Iterable[UUID], seal: Seal
) -> list[Delivery]:
    """Adds the event with a delivery to each of the webhooks, whose rows are locked."""
    now = utc_now()
    event_id = _event_id(now)
    row = Event(
        id=event_id,
        workspace_id=workspace_id,
        kind=event.kind,
        body=seal(_body(event, now), body_about(workspace_id, event_id)),
        created_at=now,
    )
    session.add(row)
    session.flush()
    deliveries = [
        Delivery(id=uuid4(), event_id=row.id, webhook_id=webhook_id, next_at=now, created_at=now)
        for webhook_id in webhook_ids
    ]
    session.add_all(deliveries)
    session.flush()
    return deliveries


def wanted_kinds(session: Session, workspace_id: int) -> frozenset[str]:
    """The kinds of events that an active webhook of the workspace asked for."""
    lists = session.exec(
        select(Webhook.events).where(
            Webhook.workspace_id == workspace_id, Webhook.status == "active"
        )
    )
    return frozenset(kind for kinds in lists for kind in kinds)


def _wanting_webhooks(session: Session, workspace_id: int, kind: EventKind) -> list[UUID]:
    # The rows are kept until the commit, the workspace's first: one that is deleted meanwhile
    # would else break the transaction that the event belongs to.
    query = (
        select(Webhook.id, Webhook.events)
        .select_from(Workspace)
        .join(Webhook, col(Webhook.workspace_id) == col(Workspace.id))
        .where(Workspace.id == workspace_id, Webhook.status == "active")
        .with_for_update(read=True, key_share=True)
    )
    return [webhook_id for webhook_id, kinds in session.exec(query) if kind in kinds]


def _event_id(now: datetime) -> str:
    """Ids of later events sort later; no dot is in them, which signatures join with."""
    milliseconds = int(now.timestamp() * 1000)
    return f"evt_{milliseconds:012x}{secrets.token_hex(10)}"


def _body(event: NewEvent, now: datetime) -> str:
    """What is sent and signed, byte for byte the same on each attempt."""
    timestamp = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(
        {"event": event.kind, "timestamp": timestamp, "data": event.data},
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
