"""Pronunciation dictionaries of workspaces."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import LargeBinary
from sqlmodel import Field, Session, SQLModel, col, delete, select
from sqlmodel.sql.expression import SelectOfScalar

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, utc_now


class PronunciationDictionary(SQLModel, table=True):
    """A dictionary with its last versions."""

    __tablename__ = "pronunciation_dictionary"

    id: UUID = Field(default_factory=uuid4, primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    name: str
    version: int = 0  # the newest
    size: int = 0  # its entries
    content: bytes = Field(default=b"", sa_type=LargeBinary)  # JSON of the versions, encrypted
    updated_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def dictionaries_of(workspace_id: int) -> SelectOfScalar[PronunciationDictionary]:
    """The query for those of a workspace, by name."""
    table = PronunciationDictionary
    query = select(table).where(col(table.workspace_id) == workspace_id)
    return query.order_by(col(table.name), col(table.id))


def delete_dictionary(session: Session, workspace_id: int, dictionary_id: UUID) -> bool:
    """False when there is no such dictionary."""
    table = PronunciationDictionary
    ours = (col(table.workspace_id) == workspace_id, col(table.id) == dictionary_id)
    return change_rows(session, delete(table).where(*ours)) > 0
