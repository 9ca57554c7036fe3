"""Custom voices and their samples, and enrolled speakers.

The row of a voice is also the entry of its job in the queue. Voices and speakers of other
workspaces are treated as nonexistent.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, LargeBinary, Text, case, func
from sqlmodel import Field, Session, SQLModel, col, select
from sqlmodel.sql.expression import SelectOfScalar

from db.accounts import workspace_reference
from db.database import UtcDateTime, page_of, utc_now

COUNTED = ("processing", "ready")
"""The states of voices that count towards the limit of the plan."""

_USABLE_FIRST = {"ready": 0, "processing": 1, "failed": 2}


class Voice(SQLModel, table=True):
    """A custom voice of a workspace, built from samples."""

    __table_args__ = (
        Index("ix_voice_workspace_id_created_at", "workspace_id", "created_at"),
        Index("ix_voice_workspace_id_name_key", "workspace_id", "name_key"),
        Index("ix_voice_status_created_at", "status", "created_at"),
    )

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference())
    name: str
    name_key: str  # the case-folded name
    description: str | None = Field(default=None, sa_type=Text)
    language: str = Field(max_length=8)  # ISO 639-1 code
    accent: str | None = Field(default=None, max_length=16)  # as in VoiceInfo; None: not stated
    gender: str = Field(max_length=8)  # male, female or neutral
    pitch_hz: float | None = None  # median of the samples; None when no pitch was detected
    status: str = Field(default="processing", max_length=16)  # or ready, failed
    progress: float = 0.0  # 0 to 1
    estimated_completion: datetime = Field(sa_type=UtcDateTime)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    # The result.
    similarity: float | None = None  # cosine of its speech with held-out samples
    error: str | None = Field(default=None, max_length=40)  # error code of a failure
    reason: str | None = Field(default=None, sa_type=Text)  # the message of the error
    engine: str | None = Field(default=None, max_length=40)  # name of the engine it is built for
    pack_file: str | None = Field(default=None, max_length=40)  # id of the stored file
    pack_digest: str | None = Field(default=None, max_length=64)  # SHA-256 in hexadecimal digits
    report_file: str | None = Field(default=None, max_length=40)

    # The consent, its author and the client's address.
    consent: str | None = Field(default=None, sa_type=Text)
    consent_sentence: str | None = Field(default=None, sa_type=Text)  # read aloud in a recording
    consent_by: str | None = Field(default=None, max_length=40)  # user:… or key:…
    consent_address: str | None = Field(default=None, max_length=64)
    consent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    # The job. The process with the lease builds the voice; an expired lease can be taken over.
    operation: str = Field(max_length=64)  # name of its hold in the ledger
    lease: str | None = Field(default=None, max_length=40)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attempt: int = 0  # attempts so far
    checkpoint_file: str | None = Field(default=None, max_length=40)


class VoiceSample(SQLModel, table=True):
    """One recording for a voice, as it was uploaded."""

    __tablename__ = "voice_sample"

    voice_id: UUID = Field(foreign_key="voice.id", ondelete="CASCADE", primary_key=True)
    position: int = Field(primary_key=True)  # from 0, in the order of the form
    file_id: str = Field(max_length=40)
    seconds: float

    # Its quality, measured before it was accepted.
    speech_share: float
    snr_db: float
    level_dbfs: float  # of its speech
    clipped_share: float


class EnrolledSpeaker(SQLModel, table=True):
    """A person whose voice is recognised, by their consent. No recording is kept."""

    __tablename__ = "enrolled_speaker"

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    name: str
    embedding: bytes = Field(sa_type=LargeBinary)  # float32 [256], encrypted
    consent: str = Field(sa_type=Text)  # attested in words, or the sentence that was read aloud
    consent_by: str = Field(max_length=40)  # user:… or key:…
    consent_address: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def speakers_of(workspace_id: int) -> SelectOfScalar[EnrolledSpeaker]:
    """The query for the enrolled speakers of a workspace, by name."""
    ours = col(EnrolledSpeaker.workspace_id) == workspace_id
    return select(EnrolledSpeaker).where(ours).order_by(col(EnrolledSpeaker.name))


def add_voice(session: Session, voice: Voice, samples: Sequence[VoiceSample]) -> None:
    session.add(voice)
    session.flush()
    session.add_all(samples)
    session.flush()


def voice_of(
    session: Session, workspace_id: int, voice_id: UUID, *, lock: bool = False
) -> Voice | None:
    """The voice, or None when the workspace has no such voice."""
    query = select(Voice).where(Voice.id == voice_id, Voice.workspace_id == workspace_id)
    return session.exec(query.with_for_update() if lock else query).one_or_none()


def voice_of_report(session: Session, workspace_id: int, report_file: str) -> Voice | None:
    """The voice with that report file."""
    query = select(Voice).where(
        Voice.workspace_id == workspace_id, Voice.report_file == report_file
    )
    return session.exec(query).first()


def voice_named(session: Session, workspace_id: int, name_key: str) -> Voice | None:
    """The newest voice of that name; ready ones come first."""
    query = (
        select(Voice)
        .where(Voice.workspace_id == workspace_id, Voice.name_key == name_key)
        .order_by(case(_USABLE_FIRST, value=Voice.status), col(Voice.created_at).desc())
    )
    return session.exec(query.limit(1)).first()


def voices_page(
    session: Session,
    workspace_id: int,
    page: int,
    limit: int,
    status: str | None = None,
    languages: Collection[str] | None = None,
) -> tuple[list[Voice], int]:
    """One page of voices, newest first, and their total number; `page` counts from 1."""
    chosen = [col(Voice.workspace_id) == workspace_id]
    if status is not None:
        chosen.append(col(Voice.status) == status)
    if languages is not None:
        chosen.append(col(Voice.language).in_(languages))
    query = select(Voice).where(*chosen).order_by(col(Voice.created_at).desc(), col(Voice.id))
    return page_of(session, query, page, limit)


def ready_voices(session: Session, workspace_id: int) -> list[Voice]:
    """The voices with status ready, newest first."""
    query = select(Voice).where(Voice.workspace_id == workspace_id, Voice.status == "ready")
    return list(session.exec(query.order_by(col(Voice.created_at).desc(), col(Voice.id))))


def count_voices(session: Session, workspace_id: int) -> int:
    """How many voices count towards the limit of the plan."""
    return session.exec(
        select(func.count())
        .select_from(Voice)
        .where(Voice.workspace_id == workspace_id, col(Voice.status).in_(COUNTED))
    ).one()


def unfinished_operations(session: Session, workspace_id: int) -> list[str]:
    """Operations of the holds of unfinished voices."""
    query = select(Voice.operation).where(
        Voice.workspace_id == workspace_id, Voice.status == "processing"
    )
    return list(session.exec(query))


def samples_of(session: Session, voice_id: UUID) -> list[VoiceSample]:
    """The samples in the order of the form."""
    query = select(VoiceSample).where(VoiceSample.voice_id == voice_id)
    return list(session.exec(query.order_by(col(VoiceSample.position))))


def files_of(session: Session, voice: Voice) -> list[str]:
    """Ids of all stored files of the voice."""
    kept = (voice.pack_file, voice.report_file, voice.checkpoint_file)
    samples = [sample.file_id for sample in samples_of(session, voice.id)]
    return [*samples, *(file_id for file_id in kept if file_id is not None)]


def delete_voice(session: Session, voice: Voice) -> None:
    """Deletes the rows of the voice and its samples; callers delete the files."""
    session.delete(voice)
    session.flush()
