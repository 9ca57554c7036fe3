"""The queue of custom voices to build: rows of the table `voice`, claimed under leases in a fair
order: round robin by workspace.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, zip_longest
from typing import TypeAlias
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, delete, func, select, update

from configs.schema.voices import VoiceWorkConfig
from db.accounts import Workspace, lock_workspace
from db.billing.tables import CreditHold
from db.database import change_rows, is_free, utc_now
from db.files import expire_these_files
from db.voices.voices import Voice, files_of, voice_of

WaitingVoice: TypeAlias = sa.Row[UUID, int, float, datetime, int, datetime | None]
"""Id, workspace, progress, creation time, attempts so far, the workspace's last turn."""

NEVER = datetime.min.replace(tzinfo=UTC)
AT_ONCE = 100
NO_ATTEMPT_LEFT = "internal_error"  # error code of a voice whose attempts all failed
MIN_CHANGE_S = 5.0  # estimates that differ by less are not written


def _is_free(now: datetime) -> sa.ColumnElement[bool]:
    """Unfinished voices without a valid lease."""
    return sa.and_(col(Voice.status) == "processing", is_free(Voice.lease_until, now))


def _can_be_claimed(now: datetime, work: VoiceWorkConfig) -> sa.ColumnElement[bool]:
    return sa.and_(_is_free(now), col(Voice.attempt) < work.most_attempts)


def voices_in_turn(
    session: Session, now: datetime, work: VoiceWorkConfig
) -> Iterator[WaitingVoice]:
    """The voices that can be claimed, in the order of the queue.

    First voices with earlier attempts; then, repeatedly, the oldest voice of the workspace whose
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
        .where(_can_be_claimed(now, work))
        .order_by(col(Voice.created_at).desc(), col(Voice.id).desc())
    )
    waiting: defaultdict[int, list[WaitingVoice]] = defaultdict(list)  # the oldest last
    begun: list[WaitingVoice] = []
    session.flush()
    for voice in session.connection().execute(query):
        is_begun = voice.progress > 0 or voice.attempt > 0
        (begun if is_begun else waiting[voice.workspace_id]).append(voice)
    places = {voice.workspace_id: place for place, voice in enumerate(reversed(begun), start=1)}

    def turn(voices: list[WaitingVoice]) -> tuple[int, datetime, datetime, int]:
        first, place = voices[-1], places.get(voices[-1].workspace_id, 0)
        return place, first.voice_turn_at or NEVER, first.created_at, first.workspace_id

    yield from reversed(begun)
    # After its turn a workspace is behind all others, so each round has the same order.
    for voices in zip_longest(*map(reversed, sorted(waiting.values(), key=turn))):
        yield from filter(None, voices)


def ends_in_turn(
    session: Session, now: datetime, work: VoiceWorkConfig
) -> Iterator[tuple[UUID, datetime]]:
    """The same voices with their estimated completion, after those that are built now."""
    made = select(Voice.estimated_completion).where(
        Voice.status == "processing", col(Voice.lease_until) > now
    )
    free_at = [max(now, end) for end in session.exec(made)]
    free_at = sorted(free_at + [now] * (work.at_once - len(free_at)))[-work.at_once :]
    for voice in voices_in_turn(session, now, work):
        end = free_at[0] + timedelta(seconds=(1.0 - voice.progress) * work.seconds_per_voice)
        heapq.heapreplace(free_at, end)
        yield voice.id, end


def claim_voice(session: Session, lease: str, now: datetime, work: VoiceWorkConfig) -> Voice | None:
    """Claims the next voice under `lease`, a new unique name; None when there is none."""
    for waiting in voices_in_turn(session, now, work):
        lock_workspace(session, waiting.workspace_id, shared=True)
        query = (
            select(Voice)
            .where(Voice.id == waiting.id, _is_free(now))
            .with_for_update(skip_locked=True)
        )
        voice = session.exec(query).one_or_none()
        if voice is None:
            continue  # another process has claimed it
        voice.lease, voice.lease_until = lease, now + timedelta(seconds=work.lease_s)
        voice.attempt += 1
        left = 1.0 - voice.progress  # the progress of an earlier attempt
        voice.estimated_completion = now + timedelta(seconds=left * work.seconds_per_voice)
        session.add(voice)
        taken = update(Workspace).where(col(Workspace.id) == voice.workspace_id)
        change_rows(
            session, taken.values(voice_turn_at=now)
        )  # the workspace is behind the others from here on
        expect_waiting(session, now, work)
        return voice
    return None


def expect_waiting(session: Session, now: datetime, work: VoiceWorkConfig) -> None:
    """Updates the estimated completion of the next waiting voices."""
    session.flush()
    ends = dict(islice(ends_in_turn(session, now, work), AT_ONCE))
    query = (
        select(Voice)
        .where(col(Voice.id).in_(ends), _is_free(now))
        .order_by(col(Voice.id))
        .with_for_update(skip_locked=True)
    )
    for voice in session.exec(query):
        if abs((ends[voice.id] - voice.estimated_completion).total_seconds()) > MIN_CHANGE_S:
            voice.estimated_completion = ends[voice.id]
            session.add(voice)


def held_leases(session: Session, now: datetime) -> set[tuple[UUID, str]]:
    """Ids and leases of the voices that are being built."""
    query = select(Voice.id, Voice.lease).where(
        Voice.status == "processing", col(Voice.lease_until) > now
    )
    return {(voice_id, lease) for voice_id, lease in session.exec(query) if lease is not None}


def count_free(session: Session, now: datetime, work: VoiceWorkConfig) -> int:
    """How many voices can be claimed."""
    free = select(func.count()).select_from(Voice).where(_can_be_claimed(now, work))
    return session.exec(free).one()


def voice_under(
    session: Session, voice_id: UUID, lease: str, unexpired_at: datetime | None
) -> Voice | None:
    """The voice, if it is claimed under that lease and the lease is valid at `unexpired_at`."""
    query = select(Voice).where(
        Voice.id == voice_id, Voice.lease == lease, Voice.status == "processing"
    )
    if unexpired_at is not None:
        query = query.where(col(Voice.lease_until) > unexpired_at)
    return session.exec(query).one_or_none()


def leased_voice(session: Session, claimed: Voice) -> Voice | None:
    """The voice's row, locked; None when deleted, finished, or claimed under another lease."""
    lock_workspace(session, claimed.workspace_id, shared=True)
    voice = voice_of(session, claimed.workspace_id, claimed.id, lock=True)
    if voice is None or voice.status != "processing":
        return None
    return voice if voice.lease is not None and voice.lease == claimed.lease else None


def hopeless_voices(
    session: Session, now: datetime, work: VoiceWorkConfig
) -> list[tuple[int, UUID]]:
    """Workspaces and ids of voices without a lease that have no attempts left or waited too long.

    A voice has waited too long only if no other was finished meanwhile, however long the queue is.
    """
    query = select(Voice.workspace_id, Voice.id).where(_is_hopeless(now, work))
    return list(session.exec(query.limit(AT_ONCE)))


def hopeless_voice(
    session: Session, workspace_id: int, voice_id: UUID, now: datetime, work: VoiceWorkConfig
) -> Voice | None:
    """One of `hopeless_voices`, locked; None when it no longer is one."""
    lock_workspace(session, workspace_id, shared=True)
    query = select(Voice).where(Voice.id == voice_id, _is_hopeless(now, work))
    return session.exec(query.with_for_update(of=Voice)).one_or_none()


def _is_hopeless(now: datetime, work: VoiceWorkConfig) -> sa.ColumnElement[bool]:
    before = now - timedelta(hours=work.give_up_after_hours)
    other = aliased(Voice)
    makes_progress = sa.exists().where(
        col(other.finished_at) > before,
        sa.or_(col(other.error).is_(None), col(other.error) != NO_ATTEMPT_LEFT),
    )
    waited = sa.and_(col(Voice.created_at) < before, ~makes_progress)
    return sa.and_(_is_free(now), sa.or_(waited, col(Voice.attempt) >= work.most_attempts))


def extend_holds(session: Session, until: datetime, ending_before: datetime) -> int:
    """Extends credit holds of unfinished voices that would expire too early; returns how many."""
    ending = (
        select(CreditHold.operation)
        .join(Voice, col(Voice.operation) == CreditHold.operation)
        .where(Voice.status == "processing", col(CreditHold.expires_at) < ending_before)
        .limit(AT_ONCE)
        .with_for_update(of=CreditHold, skip_locked=True)
    )
    held = update(CreditHold).where(col(CreditHold.operation).in_(ending))
    return change_rows(session, held.values(expires_at=until))


def delete_failed_voices(session: Session, finished_before: datetime) -> int:
    """Deletes voices that failed before then, and expires their files; returns how many."""
    query = (
        select(Voice)
        .where(Voice.status == "failed", col(Voice.finished_at) < finished_before)
        .limit(AT_ONCE)
    )
    old = session.exec(query).all()
    for voice in old:
        expire_these_files(session, files_of(session, voice), utc_now())
    return change_rows(session, delete(Voice).where(col(Voice.id).in_([one.id for one in old])))
