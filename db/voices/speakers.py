"""Enrolled speakers of workspaces: their names, and what recognises their voices."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import LargeBinary, Text
from sqlmodel import Field, SQLModel, col, select
from sqlmodel.sql.expression import SelectOfScalar

from db.accounts import workspace_reference
from db.database import UtcDateTime, utc_now


class EnrolledSpeaker(SQLModel, table=True):
    """A person whose voice is recognised, with their consent. No recording is kept."""

    __tablename__ = "enrolled_speaker"

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    name: str
    embedding: bytes = Field(sa_type=LargeBinary)  # float32 [256], encrypted
    consent: str | None = Field(default=None, sa_type=Text)
    consent_sentence: str | None = Field(default=None, sa_type=Text)  # read aloud in a recording
    consent_by: str = Field(max_length=40)  # user:… or key:…
    consent_address: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def speakers_of(workspace_id: int) -> SelectOfScalar[EnrolledSpeaker]:
    """The query for those of a workspace, by name."""
    table = EnrolledSpeaker
    query = select(table).where(col(table.workspace_id) == workspace_id)
    return query.order_by(col(table.name), col(table.id))
