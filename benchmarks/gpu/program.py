"""The whole service of the GPU profile over HTTP: chat, recognition, cloned speech, all at once.

    .venv-gpu/bin/python -m benchmarks.gpu         # the profile's shapes, on a GPU
    .venv-gpu/bin/python -m benchmarks.gpu --tiny  # shapes for a CPU: checks the program

Chat, recogniser and cloning model have random weights of the true shapes (benchmarks/*/gpu.py), in
a catalogue and a cache of their own: their time does not depend on what they say. A copy of the
source has `method: prompt` in configs/custom_voices.yaml. The Fast voice, which also speaks the
recordings, the encoder of speakers and the recogniser that judges custom voices are real. In the
end chat and recogniser are swapped under load for small models with real weights.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import torch
import yaml

from benchmarks.chat import gpu as chat
from benchmarks.gpu.load import Figures, Load, Timed, together
from benchmarks.gpu.profile import write_configs, write_weights
from benchmarks.harness.report import hardware, versions
from benchmarks.harness.service import Service, add_credit, running_service, upgrade_plan
from benchmarks.stt import gpu as stt
from benchmarks.tts import gpu as tts
from configs.settings import PROJECT_DIR
from pipelines.voices.fitting.trials import word_errors
from tests.servers import free_port

SMI = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv".split()


class Run:
    """The parts of the measurement; one that fails does not stop the others."""

    def __init__(self, load: Load, service: Service, again: Path, result: Path | None) -> None:
        self._load, self._service, self._again, self._result = load, service, again, result
        self._recordings: list[bytes] = []
        self._texts: list[str] = []
        self.found: dict[str, Any] = {}

    async def all(self, tiny: bool, wanted: str = "") -> None:
        rounds: dict[str, Callable[[], Awaitable[Any]]] = {
            "fast voice": lambda: self.fast(tiny),
            "chat": lambda: self.rows(self._load.chat, (1, 2) if tiny else chat.STREAMS),
            "recognition": lambda: self.rows(self.heard, (1, 2) if tiny else stt.BATCHES),
            "custom voice": self.clone,
            "cloned speech": lambda: self.rows(partial(self._load.speak, "Ann"), tts.STREAMS),
            "all at once": self.mixed,
            "swap": self.swap,
            "real weights": self.real,
        }
        for name, part in rounds.items():
            if wanted and name not in ("fast voice", *wanted.split(",")):
                continue
            began = time.perf_counter()
            try:
                self.found[name] = await part()
            except Exception as error:  # of a service that is being tried out
                self.found[name] = {"failed": repr(error)}
            sys.stdout.write(f"{name} {time.perf_counter() - began:.1f} s\n")
            for line in (
                self.found[name] if isinstance(self.found[name], list) else [self.found[name]]
            ):
                sys.stdout.write(f"  {json.dumps(line, default=str)}\n")
            sys.stdout.flush()
            if self._result:
                self._result.write_text(json.dumps(self.found, indent=1))

    async def rows(
        self, call: Callable[[], Awaitable[Timed]], sizes: Sequence[int]
    ) -> list[Figures]:
        await call()  # warm-up
        return [await together(size, call, 2 if size < sizes[-1] else 1) for size in sizes]

    async def fast(self, tiny: bool) -> list[Figures]:
        """Also makes the recordings, of about half a minute each."""
        sentences = yaml.safe_load((PROJECT_DIR / "benchmarks/stt/passages.yaml").read_text())
        pool = [*sentences["tuned"], *sentences["held_out"]]
        for at in range(5):
            text = " ".join((pool[at * 11 :] + pool)[:11])
            sound, seconds = await self._load.record(text)
            self._texts.append(text)
            self._recordings.append(sound)
            self.found.setdefault("recordings_s", []).append(seconds)
        rows = await self.rows(partial(self._load.speak, "Heart Fast", 1), (1, 4, 16))
        return [
            *rows,
            await together(16, partial(self._load.speak, "Heart Fast", 1), 1 if tiny else 10),
        ]

    async def heard(self) -> Timed:
        """One of the recordings; "made" are its seconds."""
        self._load.number += 1
        at, began = self._load.number % len(self._recordings), time.perf_counter()
        await self._load.transcribe(self._recordings[at])
        return time.perf_counter() - began, self.found["recordings_s"][at]

    async def clone(self) -> Figures:
        took_s = await self._load.clone(self._recordings)
        return {"ready_after_s": took_s}

    async def mixed(self) -> dict[str, Figures]:
        """Eight chats, four recordings and one cloned voice, which share the GPU."""
        chats, heard, spoken = await asyncio.gather(
            together(8, self._load.chat, 3),
            together(4, self.heard, 3),
            together(1, partial(self._load.speak, "Ann"), 1),
        )
        return {"chat": chats, "recognition": heard, "cloned speech": spoken}

    async def swap(self) -> dict[str, Any]:
        """Requests while both models are swapped: how many, and which failed."""
        done, failed, ended = 0, [], asyncio.Event()

        async def client(call: Callable[[], Awaitable[Timed]]) -> None:
            nonlocal done
            while not ended.is_set():
                try:
                    await call()
                    done += 1
                except Exception as error:  # counted
                    failed.append(repr(error))

        clients = [asyncio.create_task(client(self._load.chat)) for _ in range(8)]
        clients += [asyncio.create_task(client(self.heard)) for _ in range(2)]
        began = time.perf_counter()
        command = [sys.executable, "-m", "deployments.operator", "deploy", str(self._again)]
        place = {"ANTIPHON_DATA": str(self._service.data), "PORT": self._service.url.split(":")[-1]}
        deployed = await asyncio.create_subprocess_exec(
            *command, cwd=self._again.parent / "tree", env={**os.environ, **place}
        )
        status = await deployed.wait()
        took_s = time.perf_counter() - began
        ended.set()
        await asyncio.gather(*clients)
        return {"status": status, "took_s": took_s, "requests": done, "failed": failed}

    async def real(self) -> dict[str, Any]:
        """What whisper-base hears in the recordings, and what SmolLM2 135M answers."""
        heard = [await self._load.transcribe(one) for one in self._recordings]
        counts = [word_errors(*pair, "en") for pair in zip(self._texts, heard, strict=True)]
        asked = [{"role": "user", "content": "What is the capital of France?"}]
        body = {"messages": asked, "max_tokens": 40, "temperature": 0}
        answer = await self._load.post("/openai/v1/chat/completions", json=body)
        words, wrong = (sum(one) for one in zip(*counts, strict=True))
        speed = await self.rows(self.heard, (1, 4, 16))
        said = answer["choices"][0]["message"]["content"]
        return {"words": words, "wrong": wrong, "heard": heard, "answer": said, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="shapes that a CPU can run")
    parser.add_argument("--result", type=Path, help="writes the figures there, as JSON")
    parser.add_argument("--parts", default="", help="only these, such as chat,swap")
    options = parser.parse_args()
    if not options.tiny and not torch.cuda.is_available():
        parser.error("no GPU found; --tiny checks the program on a CPU")
    place = torch.cuda.get_device_name() if torch.cuda.is_available() else hardware()
    sys.stdout.write(f"{place}\n{versions('ray', *chat.LIBRARIES)}\n")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_weights(root, options.tiny)
        torch.cuda.empty_cache()
        serve, again = write_configs(root, options.tiny)
        os.environ["RAY_DASHBOARD_PORT"] = str(free_port())
        program = [sys.executable, "-m", "deployments.main", "--config", str(serve)]
        command = ["env", "-C", str(root / "tree"), *program]
        with running_service(command, os.environ) as service:
            sys.stdout.write(f"ready after {time.monotonic() - service.started:.1f} s\n")
            upgrade_plan(service)
            add_credit(service, 100)
            asyncio.run(measure(service, again, options))
            subprocess.run(SMI, check=False) if not options.tiny else None


async def measure(service: Service, again: Path, options: argparse.Namespace) -> None:
    headers = {"Authorization": f"Bearer {service.key}"}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=service.url, headers=headers, timeout=120, limits=limits
    ) as client:
        run = Run(Load(client), service, again, options.result)
        await run.all(options.tiny, options.parts)
