"""The tables of custom voices. The row of a voice is also the job that makes it."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Text, Uuid
from sqlmodel import Field, SQLModel

import db.tables  # noqa: F401  (first: it says how constraints are named)
from db.columns import UtcDateTime, utc_now


class Voice(SQLModel, table=True):
    """A voice of a workspace, made of samples."""

    __table_args__ = (
        Index("ix_voice_workspace_id_created_at", "workspace_id", "created_at"),
        Index("ix_voice_workspace_id_name_key", "workspace_id", "name_key"),
        Index("ix_voice_status_created_at", "status", "created_at"),
    )

    id: UUID = Field(sa_column=Column(Uuid, primary_key=True))
    workspace_id: int = Field(
        sa_column=Column(BigInteger, ForeignKey("workspace.id", ondelete="CASCADE"), nullable=False)
    )
    name: str
    name_key: str  # the name without regard to case
    description: str | None = Field(default=None, sa_type=Text)
    language: str = Field(max_length=8)  # ISO 639-1 code
    accent: str | None = Field(default=None, max_length=16)  # as VoiceInfo has it, if it was said
    gender: str = Field(max_length=8)  # male, female or neutral
    pitch_hz: float | None = None  # median of the samples; None when none was found
    status: str = Field(default="processing", max_length=16)  # or ready, failed
    progress: float = 0.0  # share of the work that is done, 0 to 1
    estimated_completion: datetime = Field(sa_type=UtcDateTime)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    # What came of it.
    similarity: float | None = None  # cosine of speech that it made with samples that were kept out
    error: str | None = Field(default=None, max_length=40)  # code of why it failed
    reason: str | None = Field(default=None, sa_type=Text)  # the same in words
    engine: str | None = Field(default=None, max_length=40)  # name of the one that speaks it
    pack_file: str | None = Field(default=None, max_length=40)  # id of the stored file
    pack_digest: str | None = Field(default=None, max_length=64)  # SHA-256 in hexadecimal digits
    report_file: str | None = Field(default=None, max_length=40)

    # What was attested, by whom and from where.
    consent: str | None = Field(default=None, sa_type=Text)
    consent_sentence: str | None = Field(default=None, sa_type=Text)  # that a recording holds
    consent_by: str | None = Field(default=None, max_length=40)  # user:… or key:…
    consent_address: str | None = Field(default=None, max_length=64)
    consent_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    # The work. Whoever has the lease is at it; one that has expired can be taken by another.
    operation: str = Field(max_length=64)  # of its hold in the ledger
    lease: str | None = Field(default=None, max_length=40)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attempt: int = 0  # how often it was begun
    checkpoint_file: str | None = Field(default=None, max_length=40)


class VoiceSample(SQLModel, table=True):
    """One recording that a voice is made of, as it was sent."""

    __tablename__ = "voice_sample"

    voice_id: UUID = Field(
        sa_column=Column(Uuid, ForeignKey("voice.id", ondelete="CASCADE"), primary_key=True)
    )
    position: int = Field(primary_key=True)  # from 0, in the order of the form
    file_id: str = Field(max_length=40)
    seconds: float

    # How it was recorded, as measured before it was taken.
    speech_share: float
    snr_db: float
    level_dbfs: float  # of its speech
    clipped_share: float
