"""Traces by OpenTelemetry: off, unless its environment variables name a collector. Spans hold
numbers, names of models and routes, and classes of errors; no texts of users and no secrets. While
traces are off, none of the libraries is imported, and a span is None."""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from configs import environment

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.trace import Span as Span

Attributes: TypeAlias = Mapping[str, str | int | float]
Kind: TypeAlias = Literal["SERVER", "CLIENT", "INTERNAL"]
CallHeaders: TypeAlias = Mapping[str, str]
"""Headers that a call of a replica carries: `x-request-id`, and W3C's `traceparent` and
`tracestate`."""

STOP_S = 2.0

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that the current task serves."""

_span: ContextVar["Span | None"] = ContextVar("span", default=None)
_tracer: "Tracer | None" = None


def start_tracing() -> None:
    """Sends the spans of this process from now on, if the environment asks for it. Raises
    SettingsError if they cannot be sent."""
    global _tracer
    names = ("OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_")
    default = "otlp" if any(os.environ.get(f"{name}ENDPOINT") for name in names) else "none"
    if _tracer or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    if environment.choice("OTEL_TRACES_EXPORTER", ("otlp", "none"), default) == "none":
        return
    for name in names:
        environment.choice(f"{name}PROTOCOL", ("http/protobuf",), "http/protobuf")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise environment.SettingsError(
            f"OTEL_…: a package that traces need is missing: {error}"
        ) from None
    # Strangers could fill the log with malformed `tracestate`.
    logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)
    # 1 s instead of 5 s, so that a replica that stops loses few of its last spans.
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "1000")
    named = {"service.name": "antiphon", **OTELResourceDetector().detect().attributes}
    provider = TracerProvider(resource=Resource.create(named))
    try:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise environment.SettingsError(f"OTEL_BSP_… or OTEL_EXPORTER_…: {error}") from None
    _tracer = cast("Tracer", provider.get_tracer("antiphon"))


async def flush() -> None:
    """Sends the last spans; a collector that is down does not hold up a stop for long."""
    if _tracer is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await asyncio.to_thread(_tracer.span_processor.force_flush)


def received(raw: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager["Span | None"]:
    """Starts the span of a request, in the trace that its raw headers continue. A malformed header
    is ignored."""
    if _tracer is None:
        return nullcontext()
    pairs = [(name, value) for name, value in raw if name in (b"traceparent", b"tracestate")]
    headers = {
        name.decode(): b",".join(value for other, value in pairs if other == name).decode("latin-1")
        for name, _ in pairs
    }
    return traced("HTTP", "SERVER", headers=headers)


def call_headers(span: "Span | None") -> CallHeaders:
    """Returns the headers that a call within `span` carries to the other process."""
    headers = {} if (identity := request_id.get()) is None else {"x-request-id": identity}
    if span is not None:
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers, set_span_in_context(span))
    return headers


def start(
    name: str,
    kind: Kind = "INTERNAL",
    attributes: Attributes | None = None,
    headers: CallHeaders | None = None,
) -> "Span | None":
    """Starts a span under the current one, or in the trace that `headers` continue; `end` ends
    it."""
    if _tracer is None:
        return None
    from opentelemetry.trace import INVALID_SPAN, SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if headers is None:
        context = set_span_in_context(_span.get() or INVALID_SPAN)
    else:
        context = TraceContextTextMapPropagator().extract(headers)
        attributes = {"antiphon.request_id": request_id.get() or "", **(attributes or {})}
    return _tracer.start_span(name, context, SpanKind[kind], attributes)


def end(span: "Span | None", error: str = "") -> None:
    """Ends the span; an `error` (the name of an exception's class) marks it as failed."""
    if span is not None:
        with current(span):
            annotate({}, error=error)
        span.end()


@contextmanager
def current(span: "Span | None") -> Iterator[None]:
    """Makes `span` current for the block and tasks begun in it: their spans, logs and metrics
    belong to it."""
    token = _span.set(span)
    try:
        yield
    finally:
        with suppress(ValueError):  # an abandoned generator is closed in another context
            _span.reset(token)


@contextmanager
def traced(
    name: str,
    kind: Kind = "INTERNAL",
    attributes: Attributes | None = None,
    headers: CallHeaders | None = None,
) -> Iterator["Span | None"]:
    """Wraps the block in a span, which is current in it; an exception is its error."""
    span, error = start(name, kind, attributes, headers), ""
    try:
        with current(span):
            yield span
    except Exception as failure:  # raised again
        error = type(failure).__name__
        raise
    finally:
        end(span, error)


def annotate(attributes: Attributes, *, name: str = "", error: str = "") -> None:
    """Adds the attributes that are not 0 or empty to the current span. Can also rename the span, or
    mark it as failed with `error`, the name of an exception's class."""
    if (span := _span.get()) is not None and span.is_recording():
        attributes = {**attributes, "error.type": error}
        span.set_attributes({key: value for key, value in attributes.items() if value})
        if name:
            span.update_name(name)
        if error:
            from opentelemetry.trace import StatusCode

            span.set_status(StatusCode.ERROR)


def note(event: str, value: float) -> dict[str, str] | None:
    """Adds an event to the current span; returns the labels that name its trace in a metric."""
    if (span := _span.get()) is None or not span.is_recording():
        return None
    span.add_event(event, {"value": value})
    return {"trace_id": trace_ids()["trace_id"]}


def trace_ids() -> dict[str, str]:
    """Returns `trace_id` and `span_id` of the current span; empty without one."""
    if (span := _span.get()) is None:
        return {}
    ids = span.get_span_context()
    return {"trace_id": f"{ids.trace_id:032x}", "span_id": f"{ids.span_id:016x}"}
