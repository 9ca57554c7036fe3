"""The queue of voices to make: rows of the table `voice`, claimed under leases."""

from datetime import datetime
from itertools import islice
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from db.accounts import lock_workspace
from db.billing.tables import CreditHold
from db.database import is_free, utc_now
from db.files import expire_these_files
from db.voices.fair_order import ends_in_turn, note_turn, voices_in_turn
from db.voices.voices import Voice, files_of, voice_of

AT_ONCE = 100
NO_ATTEMPT_LEFT = "internal_error"  # error of a voice that no attempt could make
MIN_CHANGE_S = 5.0  # estimates that differ by less are not written


def claim_voice(
    session: Session, lease: str, now: datetime, until: datetime, most_attempts: int
) -> Voice | None:
    """Claims the next voice under a `lease`, which is a new name; None when there is none."""
    for waiting in voices_in_turn(session, now, most_attempts):
        lock_workspace(session, waiting.workspace_id, shared=True)
        query = (
            select(Voice)
            .where(
                Voice.id == waiting.id,
                Voice.status == "processing",
                is_free(Voice.lease_until, now),
            )
            .with_for_update(skip_locked=True)
        )
        voice = session.exec(query).one_or_none()
        if voice is None:
            continue  # another process was faster
        voice.lease, voice.lease_until = lease, until
        voice.attempt += 1
        session.add(voice)
        note_turn(session, voice.workspace_id, now)
        session.flush()
        return voice
    return None


def expect_waiting(
    session: Session, now: datetime, most_attempts: int, seconds_per_voice: float, at_once: int
) -> None:
    """Updates the estimated completion of the next voices that wait."""
    session.flush()
    expected = ends_in_turn(session, now, most_attempts, seconds_per_voice, at_once)
    ends = dict(islice(expected, AT_ONCE))
    query = (
        select(Voice)
        .where(
            col(Voice.id).in_(ends), Voice.status == "processing", is_free(Voice.lease_until, now)
        )
        .order_by(col(Voice.id))
        .with_for_update(skip_locked=True)
    )
    for voice in session.exec(query):
        if abs((ends[voice.id] - voice.estimated_completion).total_seconds()) > MIN_CHANGE_S:
            voice.estimated_completion = ends[voice.id]
            session.add(voice)


def held_leases(session: Session, now: datetime) -> set[tuple[UUID, str]]:
    """Ids and leases of voices that are being made."""
    query = select(Voice.id, Voice.lease).where(
        Voice.status == "processing", col(Voice.lease_until) > now
    )
    return {(voice_id, lease) for voice_id, lease in session.exec(query) if lease is not None}


def count_free(session: Session, now: datetime, most_attempts: int) -> int:
    """Voices that can be claimed."""
    free = (
        Voice.status == "processing",
        is_free(Voice.lease_until, now),
        col(Voice.attempt) < most_attempts,
    )
    return session.exec(select(func.count()).select_from(Voice).where(*free)).one()


def voice_under(session: Session, voice_id: UUID, lease: str) -> Voice | None:
    """The voice, if it was claimed under that lease, which may have expired since."""
    query = select(Voice).where(
        Voice.id == voice_id, Voice.lease == lease, Voice.status == "processing"
    )
    return session.exec(query).one_or_none()


def leased_voice(session: Session, workspace_id: int, voice_id: UUID, lease: str) -> Voice | None:
    """The voice, locked; None when it was deleted, finished, or claimed under another lease."""
    lock_workspace(session, workspace_id, shared=True)
    voice = voice_of(session, workspace_id, voice_id, lock=True)
    if voice is None or voice.status != "processing" or voice.lease != lease:
        return None
    return voice


def hopeless_voices(
    session: Session, now: datetime, created_before: datetime, most_attempts: int
) -> list[tuple[int, UUID]]:
    """Workspaces and ids of voices without a lease that have no attempt left, or waited too long.

    A voice waits too long only if no other was finished meanwhile, however long the queue is.
    """
    condition = _is_hopeless(now, created_before, most_attempts)
    return list(session.exec(select(Voice.workspace_id, Voice.id).where(condition).limit(AT_ONCE)))


def hopeless_voice(
    session: Session,
    workspace_id: int,
    voice_id: UUID,
    now: datetime,
    created_before: datetime,
    most_attempts: int,
) -> Voice | None:
    """One of these, locked; None when it is no longer so."""
    lock_workspace(session, workspace_id, shared=True)
    condition = _is_hopeless(now, created_before, most_attempts)
    query = select(Voice).where(Voice.id == voice_id, condition).with_for_update(of=Voice)
    return session.exec(query).one_or_none()


def _is_hopeless(
    now: datetime, created_before: datetime, most_attempts: int
) -> ColumnElement[bool]:
    other = aliased(Voice)
    makes_progress = exists().where(
        col(other.finished_at) > created_before,
        or_(col(other.error).is_(None), col(other.error) != NO_ATTEMPT_LEFT),
    )
    waited = and_(col(Voice.created_at) < created_before, ~makes_progress)
    return and_(
        col(Voice.status) == "processing",
        is_free(Voice.lease_until, now),
        or_(waited, col(Voice.attempt) >= most_attempts),
    )


def extend_holds(session: Session, until: datetime, ending_before: datetime) -> int:
    """Extends credit holds of unfinished voices that would expire too early; how many."""
    ending = (
        select(CreditHold.operation)
        .join(Voice, col(Voice.operation) == CreditHold.operation)
        .where(Voice.status == "processing", col(CreditHold.expires_at) < ending_before)
        .limit(AT_ONCE)
        .with_for_update(of=CreditHold, skip_locked=True)
    )
    extended = session.connection().execute(
        update(CreditHold).where(col(CreditHold.operation).in_(ending)).values(expires_at=until)
    )
    return extended.rowcount


def delete_failed_voices(session: Session, finished_before: datetime) -> int:
    """Deletes voices that failed before that; how many. Their files expire at once."""
    query = (
        select(Voice)
        .where(Voice.status == "failed", col(Voice.finished_at) < finished_before)
        .limit(AT_ONCE)
    )
    old = session.exec(query).all()
    for voice in old:
        expire_these_files(session, files_of(session, voice), utc_now())
    deleted = session.connection().execute(
        delete(Voice).where(col(Voice.id).in_([voice.id for voice in old]))
    )
    return deleted.rowcount
