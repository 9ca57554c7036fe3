"""Events on their way out: written in the transaction that makes them happen."""

from dataclasses import dataclass
from typing import Any, Literal

from sqlmodel import Session

EventKind = Literal[
    "tts.completed",
    "tts.failed",
    "stt.completed",
    "stt.failed",
    "voice.created",
    "voice.ready",
    "voice.failed",
]


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something that happened in a workspace, and what its receivers are told."""

    kind: EventKind
    data: dict[str, Any]


def add_event(session: Session, workspace_id: int, event: NewEvent) -> str | None:
    """The id of the event, with a delivery for each active webhook that wants its kind.

    None, and nothing written, when there is no such webhook.
    """
    return None
