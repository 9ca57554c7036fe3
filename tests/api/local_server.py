"""The application over engines without weights, on a real socket in a thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from configs.settings import Secrets, Settings
from tests.api.local_services import local_services


@dataclass(frozen=True)
class Server:
    """A server that runs, and a key with every scope."""

    url: str
    key: str


def local_settings(folder: Path) -> Settings:
    """Settings that keep everything under `folder`."""
    return Settings(
        host="127.0.0.1",
        port=0,
        data_dir=folder,
        database_url=f"sqlite:///{folder / 'test.db'}",
        weights_dir=folder / "weights",
        secrets=Secrets(token_key="t" * 48, api_key_pepper="p" * 48),
    )


@contextmanager
def serve_local(folder: Path) -> Iterator[Server]:
    """Serves in a thread with a loop of its own until the block ends."""
    services = local_services(local_settings(folder))
    try:
        with serve_app(create_app(services)) as url:
            key = asyncio.run(services.accounts.ensure_first_workspace())
            assert key is not None
            yield Server(url, key)
    finally:
        services.database.close()


@contextmanager
def serve_app(app: FastAPI) -> Iterator[str]:
    """Serves in a thread with a loop of its own until the block ends; yields the address."""
    config = uvicorn.Config(
        app, port=0, loop="uvloop", http="httptools", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the server ended before it began"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
