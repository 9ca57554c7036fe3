"""Recordings that a dialect's request has the address of."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Request

from api.http.streaming import while_connected
from api.http.uploads import MAX_FILE_BYTES, UPLOAD_FOLDERS
from api.services import SpeechServices
from pipelines.temporary_directories import temporary_directory_in_thread


@asynccontextmanager
async def fetched(request: Request, speech: SpeechServices, url: str) -> AsyncIterator[Path]:
    """The file there, until the block ends; the work stops if the client disconnects.

    Raises as `SpeechServices.fetch`, or ClientDisconnect.
    """
    async with temporary_directory_in_thread(UPLOAD_FOLDERS) as folder:
        path = folder / "0"
        await while_connected(request.receive, speech.fetch(url, path, MAX_FILE_BYTES))
        yield path
