"""Pronunciation dictionaries of workspaces."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import LargeBinary
from sqlmodel import Field, SQLModel, col, select
from sqlmodel.sql.expression import SelectOfScalar

from db.accounts import workspace_reference
from db.database import UtcDateTime, utc_now


class PronunciationDictionary(SQLModel, table=True):
    """A dictionary with its last versions."""

    __tablename__ = "pronunciation_dictionary"

    id: UUID = Field(default_factory=uuid4, primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    name: str
    version: int = 0  # newest version
    size: int = 0  # entries of the newest version
    content: bytes = Field(default=b"", sa_type=LargeBinary)  # JSON of the versions, encrypted
    updated_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def dictionaries_of(workspace_id: int) -> SelectOfScalar[PronunciationDictionary]:
    """Builds the query for the dictionaries of a workspace, by name."""
    table = PronunciationDictionary
    query = select(table).where(col(table.workspace_id) == workspace_id)
    return query.order_by(col(table.name), col(table.id))
