"""The errors of the database layer; `api` maps `code` to a status."""


class DatabaseError(Exception):
    """The database could not do its work; the base of the tree."""

    code = "internal_error"


class DatabaseUnavailable(DatabaseError):
    """The database is down, hung or locked for too long.

    Nothing was written, unless the answer was lost on its way: then perhaps it was, or still is.
    """

    code = "unavailable"
