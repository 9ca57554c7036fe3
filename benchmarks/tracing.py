"""What traces cost a short speech request: with a collector, and with one that is down.

    python -m benchmarks.tracing [--rounds 20] [--model tts/hibari]

The application, the port over a handle and a replica run in this process, as in
`benchmarks.tts.request_path`; only Ray between them is missing. The modes take turns, so that all
see the same machine. The tone engine computes almost nothing: with a voice the share is smaller.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from api.app import create_app
from benchmarks.plans import verdict
from benchmarks.tts.request_path import call, local_speaker
from deployments.replicas.tts import TTSDeployment
from pipelines.ports import TTSModel
from telemetry import tracing
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.engines import TONE
from tests.plans import raise_plans

REQUESTS = 25  # of a mode in a round
MOST = 1.1  # times the latency without traces
COLLECTOR = """
import time
from tests.collector import collecting
with collecting() as collector:
    print(collector.url, flush=True)
    time.sleep(3600)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default=TONE)
    arguments = parser.parse_args()
    collector = subprocess.Popen(
        [sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True
    )
    assert collector.stdout is not None
    try:
        url = collector.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder), arguments.model, arguments.rounds, url))
    finally:
        collector.kill()


async def measure(folder: Path, model: str, rounds: int, url: str) -> None:
    """Prints p50 and p95 of each mode, and their ratio to the first."""
    speakers: dict[str, TTSModel] = {}
    settings = local_settings(folder)
    services = local_services(settings, speakers=speakers)
    replica = TTSDeployment()
    await replica.reconfigure({"model": model})
    speakers["one"] = local_speaker(replica)
    app = create_app(services)
    key = str(await services.platform.accounts.ensure_first_workspace())
    raise_plans(settings.database_url)
    modes: dict[str, Any] = {"off": None}
    for name, endpoint in (("collector", url), ("collector down", "http://127.0.0.1:9")):
        tracing._tracer = None
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        tracing.start_tracing()
        modes[name] = tracing._tracer
    took: dict[str, list[float]] = {name: [] for name in modes}
    for number in range(rounds + 1):
        for name, tracer in modes.items():
            tracing._tracer = tracer
            for _ in range(REQUESTS):
                began = time.perf_counter()
                await call(app, "/tts-stream", key, {"text": "Hello.", "output_format": "pcm"})
                if number:  # the first fills caches
                    took[name].append(time.perf_counter() - began)
    for name, seconds in took.items():
        ratio = median(seconds) / median(took["off"])
        print(
            f"{name}: p50 {1000 * median(seconds):.2f} ms, "
            f"p95 {1000 * quantiles(seconds, n=20)[-1]:.2f} ms, {ratio:.3f} of off "
            f"(target: <= {MOST}) {verdict(ratio <= MOST)}"
        )
    await services.speech.decoder.close()
    services.infrastructure.database.close()


if __name__ == "__main__":
    main()
