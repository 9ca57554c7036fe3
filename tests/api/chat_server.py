"""The application over one chat engine of this process, on a real socket."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from api.app import create_app
from api.services import Models, Services, build_services
from models.base import ModelInfo
from models.llm.base import ChatEngine
from models.registry import GRAMMAR_CHECK
from tests.api.local_server import local_settings, serve_app
from tests.local_ports import LocalChatModel
from tests.migrated import migrate
from tests.models.configured import configured
from tests.plans import raise_plans


@dataclass(frozen=True)
class ChatServer:
    """The address of a running server, and tokens of two workspaces."""

    url: str
    token: str
    other_token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def chat_services(folder: Path, engine: ChatEngine, info: ModelInfo) -> Services:
    """Services with chat and accounts; speech and transcription have no models."""
    settings = local_settings(folder)
    migrate(settings.database_url)
    unused = cast(Any, None)
    chat_models = {"chat": LocalChatModel(engine, info)}
    models = Models(
        {},
        {},
        unused,
        chat_models,
        unused,
        unused,
        unused,
        unused,
        lambda: configured(GRAMMAR_CHECK, "harper"),
    )
    return build_services(settings, models)


@contextmanager
def serve_chat(folder: Path, engine: ChatEngine, info: ModelInfo) -> Iterator[ChatServer]:
    """Serves in a thread with its own event loop until the block ends."""
    services = chat_services(folder, engine, info)
    try:
        with serve_app(create_app(services)) as url:
            tokens = asyncio.run(sign_up_two(services))
            raise_plans(services.infrastructure.settings.database_url)
            yield ChatServer(url, *tokens)
    finally:
        services.infrastructure.database.close()


async def sign_up_two(services: Services) -> tuple[str, str]:
    first = await services.platform.accounts.sign_up("a@example.com", "correct horse", "A", "")
    second = await services.platform.accounts.sign_up("b@example.com", "correct horse", "B", "")
    return first.token, second.token
