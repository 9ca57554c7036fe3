"""Queue of custom voices to build (`db.jobs.queue`), with their estimated completion."""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from sqlmodel import Session, col, delete, select

from configs.schema.voices import VoiceWorkConfig
from db.database import change_rows, utc_now
from db.files import expire_these_files
from db.jobs.queue import AT_ONCE, claim, free, in_turn
from db.voices.voices import Voice, files_of

MIN_CHANGE_S = 5.0  # estimates that differ by less are not written


def ends_in_turn(
    session: Session, now: datetime, work: VoiceWorkConfig
) -> Iterator[tuple[UUID, datetime]]:
    """Yields waiting voices with their estimated completion, after those being built."""
    in_progress = select(Voice.estimated_completion).where(
        Voice.status == "processing", col(Voice.lease_until) > now
    )
    free_at = [max(now, end) for end in session.exec(in_progress)]
    free_at = sorted(free_at + [now] * (work.at_once - len(free_at)))[-work.at_once :]
    for voice in in_turn(session, Voice, now, work):
        end = free_at[0] + timedelta(seconds=(1.0 - voice.progress) * work.seconds_per_voice)
        heapq.heapreplace(free_at, end)
        yield voice.id, end


def claim_voice(session: Session, lease: str, now: datetime, work: VoiceWorkConfig) -> Voice | None:
    """Claims the next voice as `claim` does, and updates estimated completions."""
    if (voice := claim(session, Voice, lease, now, work)) is not None:
        left = 1.0 - voice.progress  # the progress of an earlier attempt
        voice.estimated_completion = now + timedelta(seconds=left * work.seconds_per_voice)
        expect_waiting(session, now, work)
    return voice


def expect_waiting(session: Session, now: datetime, work: VoiceWorkConfig) -> None:
    """Updates the estimated completion of the next waiting voices."""
    session.flush()
    ends = dict(islice(ends_in_turn(session, now, work), AT_ONCE))
    query = (
        select(Voice)
        .where(col(Voice.id).in_(ends), free(Voice, now))
        .order_by(col(Voice.id))
        .with_for_update(skip_locked=True)
    )
    for voice in session.exec(query):
        if abs((ends[voice.id] - voice.estimated_completion).total_seconds()) > MIN_CHANGE_S:
            voice.estimated_completion = ends[voice.id]
            session.add(voice)


def delete_failed_voices(session: Session, finished_before: datetime) -> int:
    """Deletes up to AT_ONCE voices that failed before `finished_before`, and expires their files;
    returns how many."""
    query = (
        select(Voice)
        .where(Voice.status == "failed", col(Voice.finished_at) < finished_before)
        .limit(AT_ONCE)
    )
    old = session.exec(query).all()
    for voice in old:
        expire_these_files(session, files_of(session, voice), utc_now())
    return change_rows(session, delete(Voice).where(col(Voice.id).in_([voice.id for voice in old])))
