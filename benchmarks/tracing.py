"""What traces cost a short speech request: with a collector, and with one that is down.

    python -m benchmarks.tracing [--rounds 20] [--model tts/hibari]

The application, the port over a handle and a replica run in this process; only Ray between them is
missing. The modes take turns, so that all see the same machine. The tone engine computes almost
nothing: with a voice the share is smaller.
"""

import asyncio
import logging
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, cast

import httpx
from ray.serve.handle import DeploymentHandle

from api.app import create_app
from benchmarks.harness.processes import Worker
from benchmarks.harness.report import begin, p50_p95, parser, verdict
from deployments.gateway import handles
from deployments.gateway.handles import TTSModelHandle
from deployments.replicas.tts import TTSDeployment
from pipelines.ports import TTSModel
from telemetry import tracing
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.collector import collecting
from tests.engines import TONE
from tests.plans import raise_plans

REQUESTS = 25  # of a mode in a round
MAX_RATIO = 1.1  # to the latency without traces


class LocalHandle:
    """A fake Ray handle with what speech needs, over a replica of this process."""

    def __init__(self, replica: TTSDeployment, method: str = "describe") -> None:
        self._replica = replica
        self._method = method

    @property
    def describe(self) -> "LocalHandle":
        return self

    def options(self, *, method_name: str, **_: object) -> "LocalHandle":
        return LocalHandle(self._replica, method_name)

    def remote(self, *arguments: Any) -> Any:
        return getattr(self._replica, self._method)(*arguments)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--model", default=TONE)
    arguments = begin(options)
    collector = Worker(collect)
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = measure(
                Path(folder), arguments.model, arguments.rounds, collector_url=collector.greeting
            )
            asyncio.run(work)
    finally:
        collector.stop()


def collect(pipe: Any) -> None:
    """A collector of traces in its own process, which sends its address."""
    with collecting() as collector:
        pipe.send(collector.url)
        pipe.recv()


async def measure(folder: Path, model: str, rounds: int, *, collector_url: str) -> None:
    """Print the latency of each mode, and its ratio to that without traces."""
    setattr(handles, "availability", lambda _: "ready")  # noqa: B010  # the handle is not Ray's
    replica = TTSDeployment()
    await replica.reconfigure({"model": model})
    handle = cast(DeploymentHandle[Any], LocalHandle(replica))
    speakers: dict[str, TTSModel] = {"one": TTSModelHandle("one", handle)}
    settings = local_settings(folder)
    services = local_services(settings, speakers=speakers)
    key = await services.platform.accounts.ensure_first_workspace()
    raise_plans(settings.database_url)
    tracers: dict[str, Any] = {"off": None}
    for name, url in (("collector", collector_url), ("collector down", "http://127.0.0.1:9")):
        tracing._tracer = None
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        tracing.start_tracing()
        tracers[name] = tracing._tracer
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request costs time
    took_s: dict[str, list[float]] = {name: [] for name in tracers}
    transport = httpx.ASGITransport(app=create_app(services))
    headers = {"Authorization": f"Bearer {key}"}
    body = {"text": "Hello.", "output_format": "pcm"}
    async with httpx.AsyncClient(transport=transport, base_url="http://t", headers=headers) as user:
        for number in range(rounds + 1):
            for name, tracer in tracers.items():
                tracing._tracer = tracer
                for _ in range(REQUESTS):
                    began = time.perf_counter()
                    (await user.post("/tts-stream", json=body)).raise_for_status()
                    if number:  # the first round fills caches
                        took_s[name].append(time.perf_counter() - began)
    for name, times_s in took_s.items():
        ratio = median(times_s) / median(took_s["off"])
        target = f"target: <= {MAX_RATIO}: {verdict(ratio <= MAX_RATIO)}"
        print(f"{name}: {p50_p95(times_s)}, {ratio:.3f} times the latency of off ({target})")
    await services.speech.decoder.close()
    services.infrastructure.database.close()


if __name__ == "__main__":
    main()
