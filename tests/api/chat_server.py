"""The real application over one chat engine of this process, on a real socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn

from api.app import create_app
from api.services import Services
from configs.load import load_yaml
from configs.plans_schema import PlansConfig
from configs.settings import Secrets, Settings
from db.migrate import upgrade
from db.session import Database
from models.info import ModelInfo
from models.llm.base import ChatEngine
from pipelines.accounts import Accounts
from pipelines.chat import ChatPipeline
from pipelines.chat_history import ChatHistory
from pipelines.local import LocalChatModel
from pipelines.model_list import ModelList

SECRETS = Secrets(token_key="t" * 48, api_key_pepper="p" * 48)


@dataclass(frozen=True)
class ChatServer:
    """A server that runs, and tokens of two workspaces."""

    url: str
    token: str
    other_token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def chat_services(folder: Path, engine: ChatEngine, info: ModelInfo) -> Services:
    """Services that chat and know accounts, and can do nothing else."""
    url = f"sqlite:///{folder / 'chat.db'}"
    upgrade(url)
    database = Database(url)
    models = {"chat": LocalChatModel(engine, info)}
    settings = Settings("127.0.0.1", 0, folder, url, None, f"file://{folder}", folder, SECRETS)
    return Services(
        settings=settings,
        plans=load_yaml(PlansConfig, "plans"),
        database=database,
        accounts=Accounts(database, SECRETS, "free"),
        models=ModelList(models),
        speech=cast(Any, None),
        transcription=cast(Any, None),
        chat=ChatPipeline(models, ChatHistory(database)),
    )


@contextmanager
def serve_chat(folder: Path, engine: ChatEngine, info: ModelInfo) -> Iterator[ChatServer]:
    """Serves in a thread with a loop of its own until the block ends."""
    services = chat_services(folder, engine, info)
    config = uvicorn.Config(create_app(services), port=0, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the server ended before it began"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield ChatServer(f"http://127.0.0.1:{port}", *asyncio.run(_sign_up_two(services)))
    finally:
        server.should_exit = True
        thread.join()
        services.database.close()


async def _sign_up_two(services: Services) -> tuple[str, str]:
    first = await services.accounts.sign_up("a@example.com", "correct horse", "A", "")
    second = await services.accounts.sign_up("b@example.com", "correct horse", "B", "")
    return first.token, second.token
