"""Live sockets while replicas die, models are swapped and the gateway is replaced."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from websockets.exceptions import InvalidStatus

from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.audio.encode.formats import open_encoder
from tests.deployments.conftest import TestCluster, gateway_app, until_ready
from tests.deployments.gateway.socket_client import (
    Client,
    kill_replicas,
    listening,
    ongoing,
    replicas,
    speaking,
)
from tests.engines import TONE, TONE_SLOW
from tests.migrated import data_of_a_service
from tests.patience import PATIENCE_S, until
from tests.servers import free_port
from tests.stopwatch import stopwatch

pytestmark = [pytest.mark.ray, pytest.mark.weights, pytest.mark.asyncio(loop_scope="session")]

SLOW = {"model": TONE_SLOW}
QUICK = {"model": TONE}
LONG_TEXT = "These words take a while to say. " * 12  # 24 s of audio, 7 s of synthesis
GATEWAY = "tests.deployments.gateway.hasty_gateway:build_gateway"


@dataclass(frozen=True)
class Site:
    """The gateway, and the key of a workspace whose plan allows many sockets."""

    cluster: TestCluster
    environment: dict[str, str]
    http: httpx.AsyncClient
    key: str
    voice_id: str

    @property
    def url(self) -> str:
        return str(self.http.base_url)


@pytest.fixture(scope="module")
def cluster_with_gateway(
    ray_cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TestCluster, dict[str, str]]]:
    data = tmp_path_factory.mktemp("sockets")
    data_of_a_service(data)
    environment = {"ANTIPHON_DATA": str(data), "PORT": str(free_port()), "HOST": "127.0.0.1"}
    ray_cluster.extra_apps = [gateway_app(environment, GATEWAY)]
    ray_cluster.options("TTSFast")["user_config"] = SLOW
    ray_cluster.deploy()
    yield ray_cluster, environment
    ray_cluster.extra_apps = []
    ray_cluster.options("TTSFast")["user_config"] = QUICK
    ray_cluster.deploy()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(cluster_with_gateway: tuple[TestCluster, dict[str, str]]) -> AsyncIterator[Site]:
    cluster, environment = cluster_with_gateway
    url = f"http://127.0.0.1:{environment['PORT']}"
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        await until_ready(http)
        user = {"email": "sockets@example.com", "password": "a long password"}
        key = (await http.post("/auth/signup", json=user)).json()["token"]
        with closing(
            sqlite3.connect(Path(environment["ANTIPHON_DATA"], "antiphon.db"))
        ) as database:
            database.execute("UPDATE workspace SET plan = 'enterprise'")
            database.commit()
        http.headers["Authorization"] = f"Bearer {key}"
        voices = (await http.get("/default-voices")).json()["data"]
        yield Site(cluster, environment, http, key, voices[0]["voice_id"])


@pytest.fixture(scope="module")
def utterance(weights: WeightStore) -> bytes:
    """Speech as mu-law at 8 kHz, as a telephone sends it."""
    engine, info = load_model(TTS, "tts/hibari", weights)
    request = SynthesisRequest("Please call me back tomorrow.", info.voices[0].key, "en")
    encoder = open_encoder("mulaw", 8000)
    parts = [part for chunk in engine.synthesize(request) for part in encoder.encode(chunk)]
    return b"".join([*parts, *encoder.flush()])


async def flush_succeeds_within(client: Client, seconds: float) -> bool:
    """Whether a flush succeeds within `seconds`; earlier ones may fail."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await client.speak("Again.") == "flush_completed":
            return True
        await asyncio.sleep(0.3)
    return False


async def test_a_session_reports_a_killed_tts_replica_and_then_speaks_again(site: Site) -> None:
    async with speaking(site.url, site.key, site.voice_id) as client:
        await client.send(send_text={"text": LONG_TEXT})
        await client.send(flush_context={})
        await client.until("audio_chunk")
        victims = replicas("TTSFast")
        # Between two sentences its death goes unseen.
        await until(lambda: ongoing(victims), every_s=0.005)
        kill_replicas("TTSFast")
        answer = await client.until("error", "flush_completed")
        assert "error" in answer, answer
        assert answer["error"]["context_id"] and answer["error"]["message"]
        assert await flush_succeeds_within(client, PATIENCE_S)


@pytest.mark.slow
async def test_a_session_transcribes_again_after_its_stt_replica_was_killed(
    site: Site, utterance: bytes
) -> None:
    async with listening(site.url, site.key) as client:
        assert (await client.hear(utterance))["text"]
        kill_replicas("STT")
        await client.hear(utterance)  # a final or an error
        deadline = time.monotonic() + PATIENCE_S
        while not (await client.hear(utterance)).get("text"):
            assert time.monotonic() < deadline


async def test_an_aborted_connection_stops_the_synthesis(site: Site) -> None:
    (replica,) = replicas("TTSFast")
    async with speaking(site.url, site.key, site.voice_id) as client:
        await client.send(send_text={"text": LONG_TEXT})
        await client.send(flush_context={})
        await client.until("audio_chunk")
        assert await ongoing([replica]) > 0
        client.connection.transport.abort()
        with stopwatch() as waited_s:
            while await ongoing([replica]):
                assert waited_s() < 1.0
                await asyncio.sleep(0.005)


async def test_a_model_swap_drops_no_session(site: Site, utterance: bytes) -> None:
    options = site.cluster.options("TTSFast")
    async with (
        speaking(site.url, site.key, site.voice_id) as speaker,
        listening(site.url, site.key) as listener,
    ):
        heard = asyncio.create_task(listener.hear(utterance))
        spoken = asyncio.create_task(speaker.speak(LONG_TEXT))
        await asyncio.sleep(0.3)
        try:
            options["user_config"] = QUICK
            await asyncio.to_thread(site.cluster.deploy)
            assert await spoken == "flush_completed"
            assert (await heard)["text"]
            assert await speaker.speak("With the new one.") == "flush_completed"
        finally:
            options["user_config"] = SLOW
            await asyncio.to_thread(site.cluster.deploy)
        assert await speaker.speak("With the old one.") == "flush_completed"


async def test_a_revoked_key_ends_its_sessions_within_five_seconds(
    site: Site, utterance: bytes
) -> None:
    made = (await site.http.post("/developer/api", json={"name": "short-lived"})).json()
    async with (
        speaking(site.url, made["key"], site.voice_id) as speaker,
        listening(site.url, made["key"]) as listener,
        speaking(site.url, site.key, site.voice_id) as other,
    ):
        with stopwatch() as waited_s:
            await site.http.delete(f"/developer/api/{made['id']}")
            assert "revoked" in (await speaker.until("error"))["error"]["message"]
            assert "revoked" in (await listener.until("error"))["error"]
            assert await speaker.ended() == 4401 and await listener.ended() == 4401
        assert waited_s() < 5
        assert await other.speak("I stay.") == "flush_completed"
    with pytest.raises(InvalidStatus) as refused:
        async with speaking(site.url, made["key"], site.voice_id):
            pass
    assert refused.value.response.status_code == 401


@pytest.mark.slow
async def test_a_replaced_gateway_drains_its_sockets_and_closes_them_with_1012(site: Site) -> None:
    new = gateway_app({**site.environment, "RELEASE": "2"}, GATEWAY)
    async with speaking(site.url, site.key, site.voice_id) as client:
        site.cluster.extra_apps = [new]
        replaced = asyncio.create_task(asyncio.to_thread(site.cluster.deploy))
        spoken = 0
        while True:  # until the old gateway ends this session
            name = await client.speak("I go on.")
            if name == "error":
                break
            spoken += 1
        code = await client.ended()
        assert code == 1012 and spoken > 0
        async with speaking(site.url, site.key, site.voice_id) as another:
            assert await another.speak("I am new here.") == "flush_completed"
        await replaced
