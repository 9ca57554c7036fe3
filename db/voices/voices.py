"""Custom voices and their samples, and enrolled speakers. The row of a voice is also the entry of
its job in the queue. Voices and speakers of other workspaces are treated as nonexistent."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, BigInteger, Index, LargeBinary, Text, case, delete, func
from sqlalchemy import select as select_columns
from sqlmodel import Field, Session, SQLModel, and_, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from db.accounts import Workspace, workspace_reference
from db.database import UtcDateTime, change_rows, page_of, utc_now

COUNTED = ("processing", "ready")
"""States of voices that count towards the limit of the plan."""

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
    # The voice of which this is a new version. If better, its pack and report replace that voice's.
    version_of: UUID | None = Field(default=None, index=True)
    name: str
    name_key: str  # case-folded name
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

    # Result of the job.
    similarity: float | None = None  # cosine of its speech, or preview, with held-out samples
    error: str | None = Field(default=None, max_length=40)  # error code of a failure
    reason: str | None = Field(default=None, sa_type=Text)  # message of the error
    engine: str | None = Field(default=None, max_length=40)  # name of the engine it is built for
    pack_file: str | None = Field(default=None, max_length=40)  # id of the stored file
    pack_digest: str | None = Field(default=None, max_length=64)  # SHA-256 in hexadecimal digits
    report_file: str | None = Field(default=None, max_length=40)

    imported: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # origin and time of import
    # Consent, its author and the client's address.
    consent: str | None = Field(default=None, sa_type=Text)
    consent_sentence: str | None = Field(default=None, sa_type=Text)  # read aloud in a recording
    consent_by: str | None = Field(default=None, max_length=40)  # user:… or key:…
    consent_address: str | None = Field(default=None, max_length=64)
    consent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    # State of the job: the process with the lease builds the voice; an expired lease can be taken.
    operation: str = Field(max_length=64)  # name of its hold in the ledger
    lease: str | None = Field(default=None, max_length=40)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attempt: int = 0  # failed attempts, plus a running one
    # Since when attempts have made no progress.
    tried_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    checkpoint_file: str | None = Field(default=None, max_length=40)
    preview_file: str | None = Field(default=None, max_length=40)
    preview_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class VoiceSample(SQLModel, table=True):
    """A recording for a voice, as uploaded."""

    __tablename__ = "voice_sample"

    voice_id: UUID = Field(foreign_key="voice.id", ondelete="CASCADE", primary_key=True)
    position: int = Field(primary_key=True)  # from 0, in the order of the form
    file_id: str = Field(max_length=40)
    seconds: float

    # Quality of the recording, measured before it was accepted.
    speech_share: float
    snr_db: float
    level_dbfs: float  # level of the speech
    clipped_share: float


class EnrolledSpeaker(SQLModel, table=True):
    """A person whose voice is recognised, by their consent. No recording is kept."""

    __tablename__ = "enrolled_speaker"

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    name: str
    embedding: bytes = Field(sa_type=LargeBinary)  # float32 [256], encrypted
    consent: str = Field(sa_type=Text)  # attestation, or the sentence that was read aloud
    consent_by: str = Field(max_length=40)  # user:… or key:…
    consent_address: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class VoiceConsent(SQLModel, table=True):
    """A consent phrase that a speaker has read aloud. No recording is kept."""

    __tablename__ = "voice_consent"
    __table_args__ = (
        Index("ix_voice_consent_workspace_id_created_at", "workspace_id", "created_at"),
    )

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference())
    name: str
    language: str = Field(max_length=35)  # BCP 47 tag, as given
    phrase: str = Field(sa_type=Text)
    embedding: bytes = Field(sa_type=LargeBinary)  # float32 [256], encrypted
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class StoredVoiceSettings(SQLModel, table=True):
    """Defaults for speech of a voice by a workspace, through ElevenLabs' dialect."""

    __tablename__ = "voice_settings"

    workspace_id: int = Field(sa_column=workspace_reference(primary_key=True))
    # Also ids of ElevenLabs' voices.
    voice_id: str = Field(primary_key=True, max_length=40, index=True)
    settings: dict[str, float] = Field(sa_type=JSON)  # by name, those that were set


class VoiceShare(SQLModel, table=True):
    """Offer of a voice to another workspace, which may use it once it has accepted. It is for
    `workspace_id`, or for the workspace that sends its code first. Earlier releases made offers to
    e-mail addresses, which are not verified: only accepted ones still count."""

    __tablename__ = "voice_share"

    id: UUID = Field(default_factory=uuid4, primary_key=True)
    voice_id: UUID = Field(foreign_key="voice.id", ondelete="CASCADE", index=True)
    email: str = Field(default="", max_length=254)  # only in offers of earlier releases
    code_digest: bytes | None = Field(default=None, sa_type=LargeBinary, index=True, unique=True)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # open offers only
    workspace_id: int | None = Field(
        default=None, foreign_key="workspace.id", ondelete="CASCADE", sa_type=BigInteger, index=True
    )
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    accepted_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


def speakers_of(workspace_id: int) -> SelectOfScalar[EnrolledSpeaker]:
    """Builds the query for the enrolled speakers of a workspace, by name."""
    ours = col(EnrolledSpeaker.workspace_id) == workspace_id
    return select(EnrolledSpeaker).where(ours).order_by(col(EnrolledSpeaker.name))


def delete_settings(session: Session, voice_id: UUID) -> None:
    """Deletes what workspaces have stored for a voice."""
    of_voice = col(StoredVoiceSettings.voice_id) == str(voice_id)
    change_rows(session, delete(StoredVoiceSettings).where(of_voice))


def consents_of(workspace_id: int) -> SelectOfScalar[VoiceConsent]:
    """Builds the query for the consents of a workspace, newest first."""
    ours = col(VoiceConsent.workspace_id) == workspace_id
    newest = (col(VoiceConsent.created_at).desc(), col(VoiceConsent.id).desc())
    return select(VoiceConsent).where(ours).order_by(*newest)


def voice_of(
    session: Session, workspace_id: int, voice_id: UUID, *, lock: bool = False
) -> Voice | None:
    """Finds a voice; None when the workspace has no such voice."""
    query = select(Voice).where(Voice.id == voice_id, Voice.workspace_id == workspace_id)
    return session.exec(query.with_for_update() if lock else query).one_or_none()


def voice_of_report(session: Session, workspace_id: int, report_file: str) -> Voice | None:
    """Finds the voice with that report file."""
    query = select(Voice).where(
        Voice.workspace_id == workspace_id, Voice.report_file == report_file
    )
    return session.exec(query).first()


def visible(workspace_id: int, version_of: UUID | None = None) -> tuple[Any, ...]:
    """Builds the conditions of a workspace's own and shared voices, or of versions of a voice."""
    mine = (VoiceShare.workspace_id == workspace_id, col(VoiceShare.accepted_at).is_not(None))
    shared = col(Voice.id).in_(select(VoiceShare.voice_id).where(*mine))
    return or_(Voice.workspace_id == workspace_id, shared), col(Voice.version_of) == version_of


def visible_voice(session: Session, workspace_id: int, which: Any) -> Voice | None:
    """Finds a voice by its id or name key. Of several, the workspace's own come before shared ones,
    then ready voices before others, then newer voices before older ones."""
    shared = col(Voice.workspace_id) != workspace_id
    order = (shared, case(_USABLE_FIRST, value=Voice.status), col(Voice.created_at).desc())
    same = Voice.id == which if isinstance(which, UUID) else Voice.name_key == which
    query = select(Voice).where(same, *visible(workspace_id)).order_by(*order)
    return session.exec(query.limit(1)).first()


def voices_page(
    session: Session,
    workspace_id: int,
    page: int,
    limit: int,
    status: str | None = None,
    languages: Collection[str] | None = None,
    version_of: UUID | None = None,
) -> tuple[list[tuple[Voice, str]], int]:
    """Lists one page of voices, newest first, with their workspaces' names, and their number."""
    chosen = [col(Workspace.id) == Voice.workspace_id]
    if status is not None:
        chosen.append(col(Voice.status) == status)
    if languages is not None:
        chosen.append(col(Voice.language).in_(languages))
    query: Any = select(Voice, Workspace.name).where(*visible(workspace_id, version_of), *chosen)
    query = query.order_by(col(Voice.created_at).desc(), col(Voice.id))
    return page_of(session, query, page, limit)


def ready_voices(session: Session, workspace_id: int) -> list[Voice]:
    """Lists the ready voices, own and shared, newest first."""
    query = select(Voice).where(Voice.status == "ready", *visible(workspace_id))
    return list(session.exec(query.order_by(col(Voice.created_at).desc(), col(Voice.id))))


def count_voices(session: Session, workspace_id: int) -> int:
    """Counts the voices that count towards the limit of the plan."""
    return session.exec(
        select(func.count())
        .select_from(Voice)
        .where(Voice.workspace_id == workspace_id, col(Voice.status).in_(COUNTED))
        .where(col(Voice.version_of).is_(None))
    ).one()


def lock_with_versions(session: Session, workspace_id: int, voice_id: UUID | None) -> list[Voice]:
    """Locks the versions of a voice, then the voice, in the lock order of jobs; returns their rows.
    The list is empty if the voice does not exist."""
    either = or_(Voice.id == voice_id, Voice.version_of == voice_id)
    query = select(Voice).where(Voice.workspace_id == workspace_id, either).with_for_update()
    return list(session.exec(query.order_by(col(Voice.version_of).is_(None), col(Voice.id))))


def recordings_of(session: Session, voice: Voice) -> list[VoiceSample]:
    """Lists the recordings of a voice: its own, and those of earlier versions."""
    first = voice.version_of or voice.id
    earlier = and_(Voice.version_of == first, Voice.status == "ready")
    query = select(VoiceSample).join(Voice, col(Voice.id) == VoiceSample.voice_id)
    query = query.where(or_(col(Voice.id).in_((first, voice.id)), earlier))
    return list(session.exec(query.order_by(col(Voice.created_at), col(VoiceSample.position))))


def is_valid_share() -> Any:
    """Builds the condition that a share is not an open offer to an e-mail address."""
    return or_(VoiceShare.email == "", col(VoiceShare.accepted_at).is_not(None))


def shares_of(workspace_id: int) -> Any:
    """Builds the query for shares that a workspace offers or is offered. It has the columns of the
    share, the name of the voice, its `owner`, and whether it `is_own`."""
    is_own = col(Voice.workspace_id) == workspace_id
    columns: list[Any] = [VoiceShare.metadata.tables["voice_share"], Voice.name]
    columns += [col(Voice.workspace_id).label("owner_id"), col(Workspace.name).label("owner")]
    mine = or_(and_(VoiceShare.workspace_id == workspace_id, is_valid_share()), is_own)
    query: Any = select_columns(*columns, is_own.label("is_own"))
    query = query.where(Voice.id == VoiceShare.voice_id, Workspace.id == Voice.workspace_id, mine)
    return query.order_by(col(VoiceShare.created_at).desc(), col(VoiceShare.id))


def samples_of(session: Session, voice_id: UUID) -> list[VoiceSample]:
    """Lists the samples in the order of the form."""
    query = select(VoiceSample).where(VoiceSample.voice_id == voice_id)
    return list(session.exec(query.order_by(col(VoiceSample.position))))


def files_of(session: Session, voice: Voice) -> list[str]:
    """Lists the ids of all stored files of the voice."""
    kept = (voice.pack_file, voice.report_file, voice.checkpoint_file, voice.preview_file)
    samples = [sample.file_id for sample in samples_of(session, voice.id)]
    return [*samples, *(file_id for file_id in kept if file_id is not None)]
