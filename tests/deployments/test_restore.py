"""A backup of the database, the store and the secrets is restored as docs/operating.md says, and
the service goes on from it."""

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from sqlalchemy.engine import make_url

from api.app import create_app
from configs.environment import SettingsError
from configs.settings import Settings
from db.accounts import find_workspace
from db.billing.ledger import discrepancies
from deployments.agreement import open_database
from deployments.backup import back_up, restore
from tests.api.local_server import local_settings, serve_app, serve_services
from tests.api.local_services import local_services
from tests.servers import postgres_program

SAID = "The parrot knows the way to the harbour."


def emptied(url: str, folder: Path) -> str:
    """The URL of a new database on the same server."""
    target = make_url(url)
    if target.get_backend_name() == "sqlite":
        return f"sqlite:///{folder / 'restored.db'}"
    name = f"restored_{uuid4().hex}"
    plain = str(target.set(drivername="postgresql"))
    program = postgres_program("createdb") or ""
    subprocess.run([program, f"--maintenance-db={plain}", name], check=True)
    return str(target.set(database=name))


def test_a_restored_service_knows_keys_chats_files_and_credit(
    database_url: str, tmp_path: Path
) -> None:
    before = replace(local_settings(tmp_path), database_url=database_url)
    asyncio.run(open_database(before)).close()
    services = local_services(before)
    with serve_services(services) as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        message = {"role": "user", "content": SAID}
        body = {"messages": [message], "stream": False, "save_chat": True}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
        chat = answer.json()["chat_id"]
        owner = asyncio.run(services.infrastructure.database.read(find_workspace, None, None))
        assert owner is not None
        files = services.infrastructure.files
        stored = asyncio.run(files.put(owner.id, "test", "audio/wav", b"some audio", None))
        back_up(before, tmp_path / "backup")
    with pytest.raises(FileExistsError):  # never over another backup
        back_up(before, tmp_path / "backup")
    with pytest.raises(ValueError, match="there are tables already"):
        restore(before, tmp_path / "backup")

    url = emptied(database_url, tmp_path)
    after = replace(before, database_url=url, storage_url=f"file://{tmp_path / 'copy'}")
    with pytest.raises(ValueError, match="is no backup"):
        restore(after, tmp_path)
    with pytest.raises(ValueError, match="there are files already"):
        restore(replace(after, storage_url=before.storage_url), tmp_path / "backup")
    assert "restored" in restore(after, tmp_path / "backup")
    with pytest.raises(SettingsError, match="^STORAGE_URL: not what this database"):
        empty = replace(after, storage_url=f"file://{tmp_path / 'empty'}")
        asyncio.run(open_database(empty))
    with pytest.raises(SettingsError, match="^ANTIPHON_DATA_KEYS"):
        asyncio.run(open_database(with_other_data_keys(after)))
    database = asyncio.run(open_database(after))
    assert asyncio.run(database.read(discrepancies)) == []
    database.close()
    services = local_services(after)
    try:
        found = asyncio.run(services.infrastructure.files.read(owner.id, stored))
        assert found == b"some audio"
    finally:
        services.infrastructure.database.close()
    services = local_services(after)
    with serve_app(create_app(services)) as address:
        answer = httpx.get(f"{address}/chats/{chat}", headers=headers)
        assert answer.status_code == 200 and SAID in answer.text
    services.infrastructure.database.close()


def with_other_data_keys(settings: Settings) -> Settings:
    keys = ("eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=",)
    return replace(settings, secrets=replace(settings.secrets, data_keys=keys))
