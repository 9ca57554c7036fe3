"""Column types and values that every table uses."""

import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Integer
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

metadata = SQLModel.metadata
# Every constraint has a name that migrations can use on either database. Every table has a column
# type of this module, so the convention is set before the first table.
metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


AUTO_INCREMENT = BigInteger().with_variant(Integer, "sqlite")
"""The type of a key that counts up; SQLite does so only where the key is an INTEGER."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its zone, always UTC, also on SQLite, which stores none."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a moment without a zone: {value!r}")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_now() -> datetime:
    return datetime.now(UTC)


def random_id() -> int:
    """A positive integer of at most 53 bits, which a JavaScript number holds exactly."""
    return secrets.randbelow(2**53 - 1) + 1
