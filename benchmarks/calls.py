"""Gaps in the audio of many calls over WebRTC on one gateway, whose models cost nothing: tones for
speech, and an echo for a language model.

python -m benchmarks.calls [--calls 20] [--seconds 30]
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

from benchmarks.harness.report import begin, p50_p95, parser, verdict
from benchmarks.harness.service import processor_seconds
from models.audio import Pcm
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.openai.realtime.caller import call
from tests.pipelines.stt.listening_doubles import quiet

TEXT = "This is a rather long sentence that the agent says. " * 60
MOST_GAP_S = 0.1


def serve() -> None:
    """Serves until the input ends; prints the address and the key."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_services(local_services(local_settings(Path(folder)))) as server,
    ):
        print(server.url, server.key, flush=True)
        sys.stdin.read()


async def talk(arguments: argparse.Namespace, url: str, key: str, pid: int) -> bool:
    microphone: Pcm = quiet(arguments.seconds + 60)
    async with AsyncExitStack() as stack:
        callers = []
        for _ in range(arguments.calls):
            caller = await stack.enter_async_context(
                call(url.partition("//")[2], key, patience_s=arguments.seconds + 120)
            )
            caller.microphone.say(microphone)
            await caller.client.write(TEXT)
            await caller.client.send("response.create")
            callers.append(caller)
        await asyncio.sleep(2)
        before_s = sum(processor_seconds(pid).values())
        began = time.perf_counter()
        for caller in callers:
            caller.came_at.clear()
        await asyncio.sleep(arguments.seconds)
        wall_s = time.perf_counter() - began
        used_s = sum(processor_seconds(pid).values()) - before_s
        times = [caller.came_at for caller in callers]
    gaps = [later - earlier for came in times for earlier, later in pairwise(came)]
    print(f"{arguments.calls} calls, {arguments.seconds} s, gateway {used_s / wall_s:.2f} cores")
    print(f"  frames: {len(gaps) / (arguments.calls * wall_s):.1f}/s, apart {p50_p95(gaps)}")
    is_met = bool(gaps) and max(gaps) <= MOST_GAP_S
    target = f"target {MOST_GAP_S * 1000:.0f}: {verdict(is_met)}"
    print(f"  longest gap {max(gaps, default=0.0) * 1000:.0f} ms, {target}")
    return is_met


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--calls", type=int, default=20)
    options.add_argument("--seconds", type=int, default=30)
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    if "--serve" in sys.argv:
        serve()
        return
    arguments = begin(options, "aiortc", "av")
    command = [sys.executable, "-m", "benchmarks.calls", "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        url, key = server.stdout.readline().split()
        try:
            is_met = asyncio.run(talk(arguments, url, key, server.pid))
        finally:
            server.stdin.close()
    sys.exit(not is_met)


if __name__ == "__main__":
    main()
