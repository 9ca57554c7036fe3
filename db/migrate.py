"""Brings a database to the newest tables: `python -m db.migrate` or `upgrade(url)`."""

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import InterfaceError, OperationalError

from configs.environment import SettingsError
from configs.settings import load_settings
from db.errors import DatabaseError, DatabaseUnavailable

MIGRATIONS = Path(__file__).resolve().parent / "migrations"


def upgrade(url: str) -> None:
    """Applies every migration that is missing. Processes that start at once take turns.

    Raises DatabaseUnavailable, or DatabaseError when the tables are of a newer release.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = url
    try:
        command.upgrade(config, "head")
    except (OperationalError, InterfaceError) as error:
        reason = " ".join(str(error.orig).split())
        raise DatabaseUnavailable(f"DATABASE_URL: the database cannot be used: {reason}") from error
    except CommandError as error:
        message = f"DATABASE_URL: the tables are not of this release, but of a newer one: {error}"
        raise DatabaseError(message) from error


if __name__ == "__main__":
    try:
        upgrade(load_settings().database_url)
    except (SettingsError, DatabaseError) as error:
        sys.exit(str(error))
