"""Servers for third-party clients: chat, and speech with and without weights."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from api.services import Models, Services, build_services
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig, load_profiles
from configs.schema.voices import VoicesConfig
from models.audio import float_to_pcm16, resample
from models.base import ModelInfo
from models.errors import EngineLost
from models.llm.base import GenerationDelta, GenerationRequest
from models.registry import (
    GRAMMAR_CHECK,
    STT,
    TTS,
    TURN_DETECTION,
    VAD,
)
from models.stt.base import STT_SAMPLE_RATE
from models.weights.store import WeightStore
from pipelines.ports import ModelList
from pipelines.stt.file import TranscriptionPipeline
from pipelines.stt.session import LiveTranscriptionPipeline
from pipelines.tts.pipeline import SpeechPipeline
from tests.api.chat_server import ChatServer, serve_chat
from tests.api.local_server import OPERATOR_TOKEN, Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.native.test_operator_routes import Control
from tests.api.replaced import with_infrastructure, with_speech, with_synthesis, with_transcription
from tests.clients.browser import Browser, browser_of_pages
from tests.clients.dialogue import SENTENCES, DialogueEngine
from tests.clients.microphone import RATE
from tests.clients.node_clients import NodeClients
from tests.clients.registry_clients import RegistryClients
from tests.clients.tls_front import tls_front
from tests.engines.echo import EchoConfig, EchoEngine
from tests.hostile.audio_files import wav
from tests.local_ports import LocalChatModel, LocalSTTModel, LocalTTSModel
from tests.migrated import migrate
from tests.models.configured import configured, described
from tests.models.sounds import speak
from tests.models.speaker.bands import BandsEngine
from tests.pipelines.webhooks.receivers import Authority

INFO = ModelInfo("svc/echo", "chat", "echo", "us", 0, ("en",), ("svc/slm-3b-int4",))


class FragileEngine(EchoEngine):
    """Raises EngineLost at the word "break"."""

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


@pytest.fixture(scope="package")
def tone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Synthesises tones and transcribes all audio as one sentence."""
    settings = local_settings(tmp_path_factory.mktemp("tones"), OPERATOR_TOKEN)
    services = with_infrastructure(local_services(settings), cluster=Control())
    with serve_services(services) as running:
        yield running


@pytest.fixture
def safe_url(tone_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of `tone_server` with TLS, whose authority the clients trust."""
    authority = Authority.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", authority.ca_file)
    with tls_front(tone_server.url, authority.tls("127.0.0.1")) as url:
        yield url


@pytest.fixture(scope="package")
def speech_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Speaks with the fast voices and listens with Whisper. Skips without their weights."""
    speaker = LocalTTSModel(*described(TTS, "hibari"))
    transcriber = LocalSTTModel(*described(STT, "whisper_base"))
    built = local_services(local_settings(tmp_path_factory.mktemp("speech")))
    listening = load_yaml(ListeningConfig, "listening")
    models = ModelList({"hibari": speaker}, {"whisper": transcriber}, {})
    services = with_synthesis(
        built, SpeechPipeline({"hibari": speaker}, load_yaml(VoicesConfig, "voices"))
    )
    services = with_transcription(
        services,
        TranscriptionPipeline(
            transcriber, built.speech.decoder, configured(VAD, "webrtc"), load_profiles()
        ),
    )
    services = with_speech(
        services,
        live_transcription=LiveTranscriptionPipeline(
            transcriber, configured(VAD, Path(listening.vad).name), listening
        ),
        openai=replace(services.speech.openai, models=models),
    )
    services = with_infrastructure(services, models=models)
    with serve_services(services) as running:
        yield running


def dialogue_services(folder: Path, weights: WeightStore) -> Services:
    """Voice agents that hear and speak with the default models of a CPU, and answer by rules.

    Skips without their weights.
    """
    settings = local_settings(folder)
    migrate(settings.database_url)
    listening = load_yaml(ListeningConfig, "listening")
    transcriber = LocalSTTModel(*described(STT, "whisper_base"))
    config = EchoConfig(engine="echo", id=INFO.id, owned_by="us", created=0, languages=("en",))
    engine = DialogueEngine(config, weights)
    detector = configured(TURN_DETECTION, "smart_turn")
    models = Models(
        speakers={"hibari": LocalTTSModel(*described(TTS, "hibari"))},
        transcribers={"whisper": transcriber},
        transcriber=transcriber,
        chat_models={"chat": LocalChatModel(engine, INFO)},
        vad=configured(VAD, "webrtc"),
        live_vad=configured(VAD, Path(listening.vad).name),
        turn_detector=lambda: detector,
        speaker_encoder=BandsEngine,
        grammar=lambda: configured(GRAMMAR_CHECK, "harper"),
    )
    return build_services(settings, models)


@pytest.fixture(scope="package")
def agent_server(
    tmp_path_factory: pytest.TempPathFactory, weights: WeightStore
) -> Iterator[Server]:
    """Speaks with the Fast voice, listens with Whisper and Smart Turn, and answers by rules."""
    services = dialogue_services(tmp_path_factory.mktemp("agent"), weights)
    with serve_services(services) as running:
        yield running


@pytest.fixture(scope="package")
def sentences(tmp_path_factory: pytest.TempPathFactory, weights: WeightStore) -> Path:
    """A folder with what a user says in a dialogue, as WAV files at the microphone's RATE."""
    folder = tmp_path_factory.mktemp("sentences")
    for name, text in SENTENCES.items():
        pcm = np.asarray(resample(speak(text, weights), STT_SAMPLE_RATE, RATE), np.float32)
        (folder / f"{name}.wav").write_bytes(wav(float_to_pcm16(pcm), rate=RATE))
    return folder


@pytest.fixture(scope="session")
def registry_clients() -> RegistryClients:
    """Skips where `make clients` has not run."""
    return RegistryClients()


@pytest.fixture(scope="package")
def node_clients() -> Iterator[NodeClients]:
    """Packages of npm. Skips where they cannot be installed."""
    with closing(NodeClients()) as clients:
        yield clients


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """With a silent microphone. Skips where there is no Chromium."""
    with browser_of_pages(tmp_path_factory.mktemp("microphone") / "none.wav") as running:
        yield running


@pytest.fixture(scope="package")
def recording(tmp_path_factory: pytest.TempPathFactory, weights: WeightStore) -> Path:
    """A WAV file with a spoken sentence."""
    pcm = speak("This is a sentence of some length.", weights)
    path = tmp_path_factory.mktemp("recording") / "speech.wav"
    path.write_bytes(wav((pcm * 32767).astype("<i2").tobytes(), rate=STT_SAMPLE_RATE))
    return path


def english_voice(server: Server) -> str:
    """The id of a default voice."""
    answer = httpx.get(
        f"{server.url}/default-voices", headers={"Authorization": f"Bearer {server.key}"}
    )
    voices = answer.raise_for_status().json()["data"]
    return next(str(v["voice_id"]) for v in voices if v["labels"]["language"] == "en")


def speak_through(clients: RegistryClients, script: Path, server: Server) -> dict[str, Any]:
    """The results of a published client, run by `script` with an English voice."""
    heard: dict[str, Any] = clients.run(script, server.url, server.key, english_voice(server))
    return heard


def socket_url(server: Server, path: str) -> str:
    return f"{server.url.replace('http', 'ws', 1)}{path}?apiKey={server.key}"
