"""The application over engines without weights, on a real socket in a thread."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from configs.environment import sqlite_url
from configs.settings import Secrets, Settings, WebhookSettings, WebRtcSettings
from deployments.gateway.listener import HttpListener
from tests.api.local_services import local_services
from tests.patience import PATIENCE_S
from tests.plans import raise_plans


@dataclass(frozen=True)
class Server:
    """The address of a running server, and a key with every scope."""

    url: str
    key: str


def patient_client(url: str | httpx.URL, headers: dict[str, str]) -> httpx.Client:
    """A client of such a server, which waits for a busy machine."""
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE_S)


OPERATOR_TOKEN = "operator-token-of-the-tests-4711"


def local_settings(folder: Path, operator_token: str | None = None) -> Settings:
    """Settings whose database, weights and files are under `folder`."""
    return Settings(
        host="127.0.0.1",
        port=0,
        data_dir=folder,
        database_url=sqlite_url(folder / "test.db"),
        weights_dir=folder / "weights",
        secrets=Secrets(
            token_keys=("t" * 48,),
            api_key_pepper="p" * 48,
            url_key="u" * 48,
            data_keys=(b64encode(b"d" * 32).decode(),),
        ),
        redis_url=None,
        storage_url=f"file://{folder / 'files'}",
        public_url="http://test",
        webhooks=WebhookSettings(),
        webrtc=WebRtcSettings((("127.0.0.1", "127.0.0.1"),)),
        free_space_mb=1,  # tests store little, on any machine
        operator_token=operator_token,
    )


@contextmanager
def serve_local(folder: Path) -> Iterator[Server]:
    with serve_services(local_services(local_settings(folder))) as running:
        yield running


@contextmanager
def serve_services(services: Services, trusted_proxies: Sequence[str] = ()) -> Iterator[Server]:
    """Serves in a thread with its own event loop until the block ends; closes the database."""
    try:
        with serve_app(create_app(services), trusted_proxies) as url:
            key = asyncio.run(services.platform.accounts.ensure_first_workspace())
            assert key is not None
            raise_plans(services.infrastructure.settings.database_url)
            yield Server(url, key)
    finally:
        services.infrastructure.database.close()


@contextmanager
def serve_app(app: FastAPI, trusted_proxies: Sequence[str] = ()) -> Iterator[str]:
    """Serves in a thread with its own event loop until the block ends, which cancels the tasks of
    the loop; yields the address."""
    listener = HttpListener(app, "127.0.0.1", 0, trusted_proxies)
    with start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
        try:
            portal.call(listener.start)
            yield f"http://127.0.0.1:{listener.port}"
        finally:
            portal.call(listener.stop)
            # Closed on its own loop, which would otherwise wait forever for the decoder's process.
            portal.call(app.state.services.speech.decoder.close)
