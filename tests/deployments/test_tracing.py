"""One trace over the processes of a cluster: the gateway, its call, and the engine's replica."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import numpy as np
import pytest
import pytest_asyncio

from deployments.gateway.handles import ModelDirectory
from models.stt.base import FILE, TranscriptionRequest
from telemetry import tracing
from tests.collector import Collector, Span, collecting, tracing_here
from tests.deployments.conftest import TestCluster, gateway_app, logs_folder, until_ready
from tests.migrated import data_of_a_service
from tests.plans import raise_plans
from tests.servers import free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(
    ray_cluster: TestCluster, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx.AsyncClient]:
    """Signed in, at a service all of whose processes trace."""
    data, port = tmp_path_factory.mktemp("traced"), free_port()
    database_url = data_of_a_service(data)
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "voices"}
    environment = {"ANTIPHON_DATA": str(data), "PORT": str(port), "HOST": "127.0.0.1", **traced}
    names = ("TTSFast", "STT", "Chat")
    for name in names:
        ray_cluster.options(name)["ray_actor_options"]["runtime_env"] = {"env_vars": traced}
    ray_cluster.extra_apps = [gateway_app(environment)]
    await asyncio.to_thread(ray_cluster.deploy)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as made:
        await until_ready(made)
        answer = await made.post(
            "/auth/signup", json={"email": "ray@example.com", "password": "a long password"}
        )
        raise_plans(database_url)
        made.headers["Authorization"] = f"Bearer {answer.json()['token']}"
        yield made
    for name in names:
        del ray_cluster.options(name)["ray_actor_options"]["runtime_env"]
    ray_cluster.extra_apps = []
    await asyncio.to_thread(ray_cluster.deploy)


async def trace_of(collector: Collector, trace_id: str, route: str, call: str) -> list[Span]:
    """The span of the request, that of its call, and that of the engine."""
    spans = []
    for kind, name in (("server", route), ("client", call)):

        def matches(span: Span, kind: str = kind, name: str = name) -> bool:
            return (span.trace_id, span.kind, span.name) == (trace_id, kind, name)

        spans += await asyncio.to_thread(collector.wait_for, matches)
    called = spans[-1].span_id
    spans += await asyncio.to_thread(collector.wait_for, lambda span: span.parent_id == called)
    return spans


async def test_speech_is_one_trace_from_the_caller_to_the_engine(
    client: httpx.AsyncClient, collector: Collector
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "traced-1"}
    answer = await client.post("/tts-synthesize", json={"text": "Hello there."}, headers=headers)
    assert answer.status_code == 200, answer.text
    request, call, engine = await trace_of(
        collector, TRACE, "POST /tts-synthesize", "TTSFast/synthesize"
    )
    assert (request.parent_id, call.parent_id) == (PARENT, request.span_id)
    assert (engine.kind, engine.trace_id) == ("server", TRACE)
    assert call.instance == request.instance != engine.instance
    assert {request.service, engine.service} == {"voices"}
    for span in (request, engine):
        assert span.attributes["antiphon.request_id"] == "traced-1"
    assert {"tts_queue_seconds", "first_audio_seconds"} <= set(engine.events)
    assert engine.attributes["antiphon.characters"] == len("Hello there.")
    assert float(str(engine.attributes["antiphon.audio_seconds"])) > 0
    logged = "\n".join(path.read_text() for path in logs_folder().glob("worker-*.err"))
    lines = [line for line in logged.splitlines() if '"traced-1"' in line]
    served = [line for line in lines if '"event": "served"' in line]
    assert all(TRACE in line for line in lines) and engine.span_id in served[0]


async def test_a_chat_has_its_tokens_and_no_text(
    client: httpx.AsyncClient, collector: Collector
) -> None:
    trace_id = TRACE[::-1]
    headers = {"traceparent": f"00-{trace_id}-{PARENT}-01"}
    body = {"messages": [{"role": "user", "content": "one two"}]}
    answer = await client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    *_, engine = await trace_of(collector, trace_id, "POST /v1/chat/completions", "Chat/generate")
    assert engine.attributes["gen_ai.operation.name"] == "chat"
    assert int(str(engine.attributes["gen_ai.usage.output_tokens"])) > 0
    assert "chat_first_token_seconds" in engine.events
    assert b"one two" not in collector.raw


async def test_requests_that_wait_for_a_recogniser_have_a_queue_each(
    client: httpx.AsyncClient,
    directory: ModelDirectory,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pcm = np.zeros(16_000, np.float32)
    with tracing_here(monkeypatch, collector), tracing.traced("callers"):
        request = TranscriptionRequest(pcm=pcm, language=None, urgency=FILE)
        await asyncio.gather(*(directory.transcriber.transcribe(request) for _ in range(8)))
    (callers,) = await asyncio.to_thread(collector.wait_for, lambda one: one.name == "callers")
    engines = await asyncio.to_thread(
        collector.wait_for, lambda one: one.trace_id == callers.trace_id and one.kind == "server", 8
    )
    assert len({one.parent_id for one in engines}) == 8
    for one in engines:
        assert one.events.count("stt_queue_seconds") == 1, engines
        assert one.attributes["antiphon.urgency"] == "file"
        assert one.attributes["antiphon.audio_seconds"] == 1
