"""Workspaces in the data folder of a service, and helpers that follow their custom voices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlmodel import col, select

from configs.environment import sqlite_url
from configs.settings import load_settings
from db.database import Database
from db.voices.voices import Voice
from db.webhooks import Event
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.voices.queue import VoiceQueue
from tests.db.rows import rows
from tests.migrated import migrate
from tests.pipelines.voices.test_queue import CONFIG, VoiceBackend


@asynccontextmanager
async def local_backend(folder: Path) -> AsyncIterator[VoiceBackend]:
    """A VoiceBackend with a workspace in a new SQLite database, without a service."""
    url = sqlite_url(folder / "test.db")
    migrate(url)
    backend = VoiceBackend(Database(url), folder)
    await backend.open_workspace()
    yield backend
    backend.database.close()


def backend_in(folder: Path) -> VoiceBackend:
    """A VoiceBackend with the files and secrets of the service whose ANTIPHON_DATA is `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_DATA", str(folder))
        settings = load_settings()
    migrate(settings.database_url)
    database = Database(settings.database_url)
    backend = VoiceBackend(database, folder)
    files = Files(settings, database, Encryption(settings.secrets.data_keys))
    backend.files = backend.voices.files = files
    backend.queue = VoiceQueue(database, files, backend.billing, CONFIG.work)
    return backend


class Watched:
    """Polls a voice, and asserts that its progress never decreases."""

    def __init__(self, backend: VoiceBackend, voice: Voice) -> None:
        self.backend = backend
        self.principal = backend.principal
        self.id = str(voice.id)
        self.progress = 0.0

    async def look(self) -> Voice:
        voice = await self.backend.voices.get(self.principal, self.id)
        assert voice.progress >= self.progress
        self.progress = voice.progress
        return voice

    async def until(self, progress: float, *, within_s: float = 60) -> Voice:
        async with asyncio.timeout(within_s):
            while (voice := await self.look()).progress < progress:
                assert voice.status == "processing", voice.reason
                await asyncio.sleep(0.1)
        return voice

    async def finished(self, *, within_s: float = 120) -> Voice:
        async with asyncio.timeout(within_s):
            while (voice := await self.look()).status == "processing":
                await asyncio.sleep(0.1)
        return voice


async def events(backend: VoiceBackend) -> list[str]:
    query = select(Event.kind).where(Event.workspace_id == backend.principal.workspace_id)
    return await rows(backend.database, query.order_by(col(Event.created_at)))
