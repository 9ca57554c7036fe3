"""Brings a database to the newest tables: `python -m db.migrate` or `upgrade(url)`."""

from pathlib import Path

from alembic import command
from alembic.config import Config

from configs.settings import load_settings

MIGRATIONS = Path(__file__).resolve().parent / "migrations"


def upgrade(url: str) -> None:
    """Applies every migration that is missing. Processes that start at once take turns."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = url
    command.upgrade(config, "head")


if __name__ == "__main__":
    upgrade(load_settings().database_url)
