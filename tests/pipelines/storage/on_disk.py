"""File storage in a temporary folder."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from db.database import Database
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.temporary_files import TemporaryFile
from tests.api.local_server import local_settings

ENCRYPTION = Encryption([b64encode(b"k" * 32).decode()])


def files_in(place: Path | str, database: Database, encryption: Encryption = ENCRYPTION) -> Files:
    """Stored in the folder `files` of a path, or at a storage URL."""
    url = place if isinstance(place, str) else f"file://{place / 'files'}"
    settings = local_settings(Path())
    settings = replace(settings, storage_url=url, public_url="https://speech.example")
    return Files(settings, database, encryption)


def written(data: bytes) -> TemporaryFile:
    """A temporary file of that content."""
    file = TemporaryFile()
    file.write(data)
    return file
