"""Fair order of the voices that wait: workspaces take turns (round robin)."""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import sqlalchemy as sa
from sqlmodel import Session, col, select

from db.accounts import Workspace
from db.database import is_free
from db.voices.voices import Voice

NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WaitingVoice:
    """A voice without a lease."""

    id: UUID
    workspace_id: int
    progress: float  # share of the work that was done before, 0 to 1
    created_at: datetime
    attempt: int  # attempts so far


def voices_in_turn(session: Session, now: datetime, most_attempts: int) -> Iterator[WaitingVoice]:
    """Those that can be claimed, in the order in which they will be.

    First voices of earlier attempts; then, repeatedly, the oldest voice of the workspace whose
    last voice was begun longest ago.
    """
    query = (
        sa.select(
            col(Voice.id),
            col(Voice.workspace_id),
            col(Voice.progress),
            col(Voice.created_at),
            col(Voice.attempt),
            col(Workspace.voice_turn_at),
        )
        .join(Workspace, col(Workspace.id) == Voice.workspace_id)
        .where(
            col(Voice.status) == "processing",
            is_free(Voice.lease_until, now),
            col(Voice.attempt) < most_attempts,
        )
        .order_by(col(Voice.created_at).desc(), col(Voice.id).desc())
    )
    waiting: defaultdict[int, list[WaitingVoice]] = defaultdict(list)  # the oldest last
    begun: list[WaitingVoice] = []
    turns: dict[int, datetime] = {}
    session.flush()
    for (
        voice_id,
        workspace_id,
        progress,
        created_at,
        attempt,
        turn_at,
    ) in session.connection().execute(query):
        voice = WaitingVoice(voice_id, workspace_id, progress, created_at, attempt)
        is_begun = voice.progress > 0 or voice.attempt > 0
        (begun if is_begun else waiting[voice.workspace_id]).append(voice)
        turns[voice.workspace_id] = turn_at or NEVER
    # A workspace that was served is next after all others.
    served = len(begun)
    places = {voice.workspace_id: place for place, voice in enumerate(reversed(begun), start=1)}
    queue = [
        (places.get(workspace_id, 0), turns[workspace_id], voices[-1].created_at, workspace_id)
        for workspace_id, voices in waiting.items()
    ]
    heapq.heapify(queue)
    yield from reversed(begun)
    while queue:
        workspace_id = queue[0][3]
        voice = waiting[workspace_id].pop()
        yield voice
        served += 1
        if waiting[workspace_id]:
            heapq.heapreplace(queue, (served, NEVER, voice.created_at, workspace_id))
        else:
            heapq.heappop(queue)


def note_turn(session: Session, workspace_id: int, now: datetime) -> None:
    """Puts the workspace behind the others, since one of its voices is begun."""
    taken = sa.update(Workspace).where(col(Workspace.id) == workspace_id)
    session.connection().execute(taken.values(voice_turn_at=now))


def ends_in_turn(
    session: Session, now: datetime, most_attempts: int, seconds_per_voice: float, at_once: int
) -> Iterator[tuple[UUID, datetime]]:
    """The same voices, and when each will be finished, behind those that are made now."""
    made = select(Voice.estimated_completion).where(
        Voice.status == "processing", col(Voice.lease_until) > now
    )
    free_at = [max(now, end) for end in session.exec(made)]
    free_at = sorted(free_at + [now] * (at_once - len(free_at)))[-at_once:]
    for voice in voices_in_turn(session, now, most_attempts):
        end = free_at[0] + timedelta(seconds=(1.0 - voice.progress) * seconds_per_voice)
        heapq.heapreplace(free_at, end)
        yield voice.id, end
