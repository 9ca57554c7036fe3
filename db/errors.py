"""The errors of the database layer; `api` maps `code` to a status."""


class DatabaseError(Exception):
    """A call of the database failed; the base class of database errors."""

    code = "internal_error"


class DatabaseUnavailable(DatabaseError):
    """The database is down, hung or locked for too long. Nothing was written, unless only the
    answer was lost: the write may then still happen."""

    code = "unavailable"
