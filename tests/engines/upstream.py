"""The engine for other services, in front of this service with the echo engine."""

import asyncio
import tempfile
import threading
import time
from pathlib import Path

import uvicorn

from api.app import create_app
from configs.schema.models.llm import LanguageModelConfig, UpstreamConfig
from models.llm.upstream import UpstreamEngine
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from tests.engines import ECHO


class UpstreamOfEchoConfig(LanguageModelConfig):
    """Without an address, which is known when the service listens."""

    engine: str
    context_tokens: int


class UpstreamOfEcho(UpstreamEngine):
    """Starts a service on a port of its own, which lives as long as the process."""

    config = UpstreamOfEchoConfig

    def __init__(self, config: UpstreamOfEchoConfig, weights: WeightStore) -> None:
        from tests.api.chat_server import chat_services, sign_up_two
        from tests.plans import raise_plans

        self._folder = tempfile.TemporaryDirectory()
        services = chat_services(Path(self._folder.name), *load_model(CHAT, ECHO, weights))
        self._server = uvicorn.Server(
            uvicorn.Config(create_app(services), port=0, log_level="error")
        )
        threading.Thread(target=self._server.run, daemon=True).start()
        key, _ = asyncio.run(sign_up_two(services))
        raise_plans(services.infrastructure.settings.database_url)
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        super().__init__(
            UpstreamConfig(
                **config.model_dump(exclude={"engine"}),
                engine="openai_upstream",
                url=f"http://127.0.0.1:{port}/openai/v1",
                model="svc/echo",
            ),
            weights,
        )
        self._key = key
