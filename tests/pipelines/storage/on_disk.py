"""Files of a workspace in a folder of the test."""

import base64
from pathlib import Path

from db.database import Database
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files


def files_in(folder: Path, database: Database, encryption: Encryption | None = None) -> Files:
    return Files(
        database,
        encryption or Encryption([base64.b64encode(b"k" * 32).decode()]),
        storage_url=f"file://{folder / 'files'}",
        public_url="https://speech.example",
        url_key="k" * 32,
    )
