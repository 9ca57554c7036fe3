"""A chat server for other people's clients."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from configs.chat_schema import EchoConfig
from models.errors import EngineLost
from models.info import ModelInfo
from models.llm.base import GenerationDelta, GenerationRequest
from models.llm.echo import EchoEngine
from models.weights.store import WeightStore
from tests.api.chat_server import ChatServer, serve_chat

INFO = ModelInfo("svc/echo", "chat", "echo", "us", 0, ("en",), ("svc/slm-3b-int4",))


class FragileEngine(EchoEngine):
    """Is lost on the word "break"."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        async for delta in super().generate(request):
            if delta.text.strip() == "break":
                raise EngineLost("the replica died")
            yield delta


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    config = EchoConfig(engine="echo", id=INFO.id, owned_by="us", created=0, languages=("en",))
    engine = FragileEngine(config, WeightStore(Path("unused")))
    with serve_chat(tmp_path_factory.mktemp("clients"), engine, INFO) as running:
        yield running
