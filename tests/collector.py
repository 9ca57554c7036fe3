"""A collector of OpenTelemetry's traces: OTLP over HTTP, as the exporter of the SDK sends it."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from telemetry import tracing
from tests.patience import PATIENCE_S

KINDS = ("", "internal", "server", "client")


@dataclass(frozen=True)
class Span:
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, object]
    events: tuple[str, ...]
    failed: bool
    service: str
    instance: str  # the process


@dataclass
class Collector:
    """What arrived so far."""

    url: str
    spans: list[Span] = field(default_factory=list)
    raw: bytes = b""

    def wait_for(self, matches: Callable[[Span], bool], number: int = 1) -> list[Span]:
        deadline = time.monotonic() + PATIENCE_S
        while len(found := [span for span in list(self.spans) if matches(span)]) < number:
            assert time.monotonic() < deadline, self.spans
            time.sleep(0.05)
        return found

    def accept(self, body: bytes) -> None:
        self.raw += body
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(batch.resource.attributes)
            for one in (span for scope in batch.scope_spans for span in scope.spans):
                self.spans.append(
                    Span(
                        one.name,
                        KINDS[one.kind],
                        one.trace_id.hex(),
                        one.span_id.hex(),
                        one.parent_span_id.hex(),
                        _values(one.attributes),
                        tuple(event.name for event in one.events),
                        one.status.code == 2,
                        str(resource["service.name"]),
                        str(resource["service.instance.id"]),
                    )
                )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.accept(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


@contextmanager
def tracing_here(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> Iterator[None]:
    """Traces of this process until the block ends."""
    monkeypatch.setattr(tracing, "_tracer", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    tracing.start_tracing()
    assert tracing._tracer is not None
    yield
    tracing._tracer.span_processor.shutdown()


def _values(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> object:
    return getattr(value, value.WhichOneof("value") or "string_value")
