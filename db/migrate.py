"""Migrates a database to the newest tables, and writes migrations, with Alembic.

python -m db.migrate                                   applies missing migrations to DATABASE_URL
python -m db.migrate new "Voices have an accent"       writes the next migration
"""

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import InterfaceError, OperationalError

from configs.environment import SettingsError, sqlite_url
from configs.settings import load_settings
from db.database import make_engine
from db.errors import DatabaseError, DatabaseUnavailable

MIGRATIONS = Path(__file__).resolve().parent / "migrations"
LAST_WITH_ALL_MIGRATIONS = "0.9.0"  # its last revision is the first one here


def upgrade(url: str, revision: str = "head") -> None:
    """Applies all missing migrations, up to `revision`. A lock serialises processes that start
    together. Raises DatabaseUnavailable, or the errors of `check_revision`."""
    try:
        if not check_tables(url):
            command.upgrade(_config(url), revision)
    except (OperationalError, InterfaceError) as error:
        reason = " ".join(str(error.orig).split())
        if reason in ("database is locked", "disk I/O error"):  # SQLite's
            reason += "; it needs a local disk, and no other process may keep it locked"
        raise DatabaseUnavailable(f"DATABASE_URL: the database cannot be used: {reason}") from error


def check_tables(url: str) -> bool:
    """Whether the tables are those of this release. Raises the errors of `check_revision`."""
    current = _revision(url)
    if current == ScriptDirectory(str(MIGRATIONS)).get_current_head():
        return True
    if current is not None:
        check_revision(current)
    return False


def check_revision(revision: str) -> None:
    """Raises DatabaseError if this release cannot migrate tables of that revision: they are of a
    newer release, or of one before the first migration."""
    migrations = ScriptDirectory(str(MIGRATIONS))
    if revision < (migrations.get_base() or ""):
        raise DatabaseError(
            f"DATABASE_URL: the tables are of a version before {LAST_WITH_ALL_MIGRATIONS} "
            f"(revision {revision}): start version {LAST_WITH_ALL_MIGRATIONS} once, "
            "which migrates them, and then this version"
        )
    try:
        migrations.get_revision(revision)
    except CommandError as error:
        message = f"DATABASE_URL: the tables are not of this release, but of a newer one: {error}"
        raise DatabaseError(message) from error


def _revision(url: str) -> str | None:
    """The revision of the tables; None when there are none. Takes no write lock, since jobs at idle
    priority call this too: beside four busy loops on two cores, such a job kept the lock for up to
    143 s."""
    engine = make_engine(url, connections=1)
    try:
        with engine.execution_options(read_only=True).connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def new_migration(message: str, migrations: Path = MIGRATIONS) -> Path:
    """Writes a migration from the newest revision to the tables of the code, for manual review. Its
    name is the next number and the message."""
    with tempfile.TemporaryDirectory() as folder:
        config = _config(sqlite_url(Path(folder, "empty.db")), migrations)
        command.upgrade(config, "head")
        head = ScriptDirectory.from_config(config).get_current_head()
        script = command.revision(
            config, message=message, autogenerate=True, rev_id=f"{int(head or 0) + 1:04}"
        )
    assert script is not None and not isinstance(script, list)
    return Path(script.path)


def _config(url: str, migrations: Path = MIGRATIONS) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.set_main_option("truncate_slug_length", "80")
    config.attributes["url"] = url
    return config


def main(arguments: list[str]) -> None:
    """Runs a command; exits with 1 and a message on an error."""
    try:
        if arguments[:1] == ["new"] and len(arguments) == 2:
            sys.stdout.write(f"{new_migration(arguments[1])}\n")
        elif arguments:
            sys.exit(__doc__)
        else:
            upgrade(load_settings().database_url)
    except (SettingsError, DatabaseError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
