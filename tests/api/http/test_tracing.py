"""Traces of the gateway, as a collector receives them, and what strangers can do to them."""

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

from api.services import Services
from configs.environment import SettingsError
from configs.settings import Settings
from telemetry import tracing
from telemetry.logs import JsonFormatter
from telemetry.tracing import start_tracing
from tests.api.local_server import local_settings
from tests.api.replaced import with_listening
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import serve
from tests.api.sockets.stt.client import stt
from tests.collector import Collector, Span, collecting, tracing_here
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
METRICS_TOKEN = "m" * 32
TEXT = "A sentence that no span may hold."


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(local_settings(tmp_path), metrics_token=METRICS_TOKEN)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as made, tracing_here(monkeypatch, made):
        yield made


async def arrived(collector: Collector, name: str, trace_id: str = "", number: int = 1) -> Span:
    def matches(span: Span) -> bool:
        return span.name == name and trace_id in ("", span.trace_id)

    return (await asyncio.to_thread(collector.wait_for, matches, number))[-1]


async def test_a_request_continues_the_trace_of_its_caller(
    client: httpx.AsyncClient, auth: dict[str, str], collector: Collector
) -> None:
    headers = auth | {"traceparent": SAMPLED, "tracestate": "vendor=1", "x-request-id": "mine-1"}
    answer = await client.post("/tts-synthesize", json={"text": TEXT}, headers=headers)
    assert answer.status_code == 200 and answer.headers["x-request-id"] == "mine-1"
    span = await arrived(collector, "POST /tts-synthesize")
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, PARENT, "server")
    assert span.attributes["antiphon.request_id"] == "mine-1"
    assert span.attributes["http.route"] == "/tts-synthesize"
    assert span.attributes["http.response.status_code"] == 200
    assert span.service == "antiphon" and not span.failed
    assert "ledger_seconds" in span.events
    assert TEXT.encode() not in collector.raw
    assert auth["Authorization"].split()[1].encode() not in collector.raw


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", f"00-{'0' * 32}-{PARENT}-01")],
        [("traceparent", f"00-{TRACE}-{'0' * 16}-01")],
        [("traceparent", f"ff-{TRACE}-{PARENT}-01")],
        [("traceparent", f"00-{TRACE.upper()}-{PARENT}-01")],
        [("traceparent", f"00-{TRACE[:-1]}g-{PARENT}-01")],
        [("traceparent", f"{SAMPLED}-more")],
        [("traceparent", f"01-{TRACE}-{PARENT}-01-{'x' * 5000}")],
        [("traceparent", SAMPLED), ("traceparent", SAMPLED)],
        [("traceparent", "é" * 55)],
        [("traceparent", '"} 1 # {trace_id="')],
        [("tracestate", "vendor=1")],
    ],
    ids=range(11),
)
async def test_a_hostile_traceparent_begins_another_trace(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    collector: Collector,
    headers: list[tuple[str, str]],
) -> None:
    headers = [*auth.items(), *headers]
    raw = [(name, value.encode("latin-1")) for name, value in headers]
    assert (await client.get("/plans", headers=raw)).status_code == 200  # type: ignore[arg-type]
    span = await arrived(collector, "GET /plans")
    assert span.trace_id != TRACE and not span.parent_id and not span.failed


@pytest.mark.parametrize("state", ["x", "a=" + "b" * 9000, "=,=,=", "a=1,a=2", "é=1"])
async def test_a_hostile_tracestate_is_left_out(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    collector: Collector,
    state: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers = {b"traceparent": SAMPLED.encode(), b"tracestate": state.encode("latin-1")}
    client.headers.update(auth)
    answer = await client.get("/plans", headers=headers)
    assert answer.status_code == 200
    assert (await arrived(collector, "GET /plans")).trace_id == TRACE
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


async def test_the_caller_decides_whether_its_trace_is_sampled(
    client: httpx.AsyncClient, collector: Collector
) -> None:
    await client.get("/plans", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    await client.get("/healthz")
    await client.get("/plans")
    assert (await arrived(collector, "GET /plans")).trace_id != TRACE
    assert len(collector.spans) == 1


async def test_a_failed_request_is_an_error_and_a_refused_one_is_not(
    client: httpx.AsyncClient,
    services: Services,
    auth: dict[str, str],
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await client.post("/tts-synthesize", json={}, headers=auth)).status_code == 400
    assert not (await arrived(collector, "POST /tts-synthesize")).failed

    async def breaks(*_: object) -> None:
        raise RuntimeError(TEXT)

    monkeypatch.setattr(services.platform.accounts.authenticator, "authenticate", breaks)
    assert (await client.get("/voices/mine", headers=auth)).status_code >= 500
    found = await asyncio.to_thread(collector.wait_for, lambda span: span.failed)
    assert found[0].attributes["error.type"] == "500" and TEXT.encode() not in collector.raw


async def test_a_socket_and_what_is_spoken_in_it_are_of_one_trace(
    services: Services, collector: Collector
) -> None:
    headers = {"traceparent": SAMPLED}
    async with serve(services) as server:
        async with connect(server.url("/ws/tts"), additional_headers=headers) as socket:
            client = TtsClient(socket, server.voice_id)
            await client.receive()
            await client.receive()
            context = await client.create()
            await client.speak(TEXT, context_id=context)
            speak = await arrived(collector, "speak", TRACE)  # while the socket is open
            assert socket.response is not None
            identity = socket.response.headers["x-request-id"]
        session = await arrived(collector, "GET /ws/tts", TRACE)
    assert session.parent_id == PARENT and speak.parent_id == session.span_id
    assert session.attributes["antiphon.request_id"] == identity
    assert session.attributes["http.response.status_code"] == 101
    assert speak.attributes["antiphon.characters"] == len(TEXT)
    assert "tts_first_audio_seconds" in speak.events
    assert TEXT.encode() not in collector.raw and server.key.encode() not in collector.raw


async def test_an_utterance_is_a_span_of_its_socket(
    services: Services, collector: Collector
) -> None:
    listening = with_listening(services, FakeTranscriber())
    async with serve(listening) as server, stt(server) as client:
        await client.start()
        await client.send_pcm(quiet(0.5), loud(1), quiet(1))
        utterance = await arrived(collector, "utterance")
        await client.receive_rest()
        session = await arrived(collector, "GET /ws/stt")
    assert utterance.parent_id == session.span_id and not utterance.failed
    assert "stt_final_seconds" in utterance.events


async def test_an_utterance_ends_with_the_socket_that_was_closed_in_it(
    services: Services, collector: Collector
) -> None:
    listening = with_listening(services, FakeTranscriber())
    async with serve(listening) as server:
        async with stt(server) as client:
            await client.start()
            await client.send_pcm(quiet(0.5), loud(1))
            assert (await client.receive())["type"] == "speech_started"
        session = await arrived(collector, "GET /ws/stt")
        utterance = await arrived(collector, "utterance", session.trace_id)
    assert utterance.parent_id == session.span_id


async def test_log_lines_have_the_trace_of_their_request(collector: Collector) -> None:
    with tracing.traced("work"):
        line = json.loads(JsonFormatter().format(logging.makeLogRecord({"msg": "event"})))
    span = await arrived(collector, "work")
    assert (line["trace_id"], line["span_id"]) == (span.trace_id, span.span_id)
    line = json.loads(JsonFormatter().format(logging.makeLogRecord({"msg": "event"})))
    assert "trace_id" not in line


async def test_latencies_name_a_trace_where_the_scraper_takes_exemplars(
    client: httpx.AsyncClient, collector: Collector
) -> None:
    await client.get("/plans", headers={"traceparent": SAMPLED})
    client.headers["authorization"] = f"Bearer {METRICS_TOKEN}"
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    page = await client.get("/metrics", headers={"accept": accept})
    plain = await client.get("/metrics")
    assert page.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in parse(page.text)}  # type: ignore[no-untyped-call]
    assert families["antiphon_http_requests"].type == "counter"
    samples = families["antiphon_http_request_duration_seconds"].samples
    assert TRACE in {one.exemplar.labels["trace_id"] for one in samples if one.exemplar}
    assert plain.headers["content-type"].startswith("text/plain")
    assert " # " not in re.sub("^# .*", "", plain.text, flags=re.MULTILINE)
    assert "# TYPE antiphon_http_requests_total counter\n" in plain.text


@pytest.mark.slow
async def test_a_collector_that_is_down_fails_no_request(
    client: httpx.AsyncClient, auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    start_tracing()
    for _ in range(50):
        assert (await client.get("/plans", headers=auth)).status_code == 200
    began = asyncio.get_running_loop().time()
    await tracing.flush()
    assert asyncio.get_running_loop().time() - began < tracing.STOP_S + 2


@pytest.mark.parametrize(
    ("variables", "is_on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
            False,
        ),
    ],
)
def test_the_usual_variables_decide(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_on: bool
) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    start_tracing()
    assert (tracing._tracer is not None) == is_on
    if tracing._tracer is not None:
        tracing._tracer.span_processor.shutdown()  # ends its thread


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_what_cannot_be_sent_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match="OTEL_"):
        start_tracing()


def test_a_missing_exporter_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    name = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError, match="is missing"):
        start_tracing()


def test_without_the_variables_nothing_is_imported() -> None:
    program = (
        "import sys; from telemetry import logs, metrics, reports, tracing;"
        "tracing.start_tracing();"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
