"""The engines for other services, in front of this service with engines of the tests."""

import asyncio
import tempfile
import threading
import time
from pathlib import Path

import uvicorn

from api.app import create_app
from api.services import Services
from configs.schema.base import ModelConfig
from configs.schema.models.llm import LanguageModelConfig, UpstreamConfig
from configs.schema.models.stt import UpstreamSTTConfig
from configs.schema.models.tts import SpeechModelConfig, UpstreamTTSConfig
from models.llm.upstream import UpstreamEngine
from models.registry import CHAT, load_model
from models.stt.upstream import UpstreamRecogniser
from models.tts.base import VoiceTable
from models.tts.upstream import UpstreamVoices
from models.weights.store import WeightStore
from tests.engines import ECHO

FORWARDS = "openai_speech"


class UpstreamOfEchoConfig(LanguageModelConfig):
    """Without an address, which is known when the service listens."""

    engine: str
    context_tokens: int


class UpstreamOfEcho(UpstreamEngine):
    """Starts a service on a port of its own, which lives as long as the process."""

    config = UpstreamOfEchoConfig

    def __init__(self, config: UpstreamOfEchoConfig, weights: WeightStore) -> None:
        from tests.api.chat_server import chat_services

        self._folder = tempfile.TemporaryDirectory()
        services = chat_services(Path(self._folder.name), *load_model(CHAT, ECHO, weights))
        url, key = listen(services)
        about = config.model_dump(exclude={"engine"}) | {"url": url, "model": "svc/echo"}
        super().__init__(UpstreamConfig(engine="openai_upstream", **about), weights)
        self._key = key


class UpstreamOfScriptedConfig(ModelConfig):
    """As above."""

    engine: str
    languages: tuple[str, ...]


class UpstreamOfScripted(UpstreamRecogniser):
    """The same for recognition."""

    config = UpstreamOfScriptedConfig

    def __init__(self, config: UpstreamOfScriptedConfig, weights: WeightStore) -> None:
        from tests.api.local_server import local_settings
        from tests.api.local_services import local_services

        self._folder = tempfile.TemporaryDirectory()
        url, key = listen(local_services(local_settings(Path(self._folder.name))))
        about = config.model_dump(exclude={"engine"}) | {"url": url, "model": "svc/stt-scripted"}
        super().__init__(UpstreamSTTConfig(engine="openai_transcriptions", **about), weights)
        self._key = key


class UpstreamOfToneConfig(SpeechModelConfig):
    """As above."""

    engine: str


class UpstreamOfTone(UpstreamVoices):
    """The same for speech."""

    config = UpstreamOfToneConfig

    def __init__(self, config: UpstreamOfToneConfig, weights: WeightStore) -> None:
        from tests.api.local_server import local_settings
        from tests.api.local_services import local_services

        self._folder = tempfile.TemporaryDirectory()
        url, key = listen(local_services(local_settings(Path(self._folder.name))))
        about = config.model_dump() | {"url": url, "model": "tts-1", "speed": True}
        super().__init__(UpstreamTTSConfig.model_validate(about | {"engine": FORWARDS}), weights)
        self._voices = VoiceTable(config.voices, config.engine)
        self._key = key


def listen(services: Services) -> tuple[str, str]:
    """The address and a key of a service in a thread."""
    from tests.api.chat_server import sign_up_two
    from tests.plans import raise_plans

    server = uvicorn.Server(uvicorn.Config(create_app(services), port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    key, _ = asyncio.run(sign_up_two(services))
    raise_plans(services.infrastructure.settings.database_url)
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    return f"http://127.0.0.1:{port}/openai/v1", key
