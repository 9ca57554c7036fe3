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
from benchmarks.harness.gpu import begin_on_gpu
from benchmarks.harness.report import parser
from benchmarks.harness.service import Service, add_credit, running_service, upgrade_plan
from benchmarks.stt import gpu as stt
from benchmarks.tts import gpu as tts
from configs.settings import PROJECT_DIR
from pipelines.voices.fitting.trials import word_errors
from tests.servers import free_port

SMI = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv".split()


class Run:
    """The parts of the measurement; one that fails does not stop the others."""

    def __init__(
        self, load: Load, service: Service, next_config: Path, options: argparse.Namespace
    ) -> None:
        self._load = load
        self._service = service
        self._next_config = next_config  # of the models that are swapped in
        self._tiny: bool = options.tiny
        self._result: Path | None = options.result
        self._recordings: list[bytes] = []
        self._recordings_s: list[float] = []
        self._texts: list[str] = []
        self._fast_voice = partial(load.speak, "Heart Fast", 1)
        self._clone_voice = partial(load.speak, "Ann")

    async def all(self, wanted: str = "") -> None:
        parts: dict[str, Callable[[], Awaitable[Any]]] = {
            "fast voice": self.fast,
            "chat": lambda: self.rows(self._load.chat, (1, 2) if self._tiny else chat.STREAMS),
            "recognition": lambda: self.rows(self.listen, (1, 2) if self._tiny else stt.BATCHES),
            "custom voice": self.clone,
            "cloned speech": lambda: self.rows(self._clone_voice, tts.STREAMS),
            "all at once": self.mixed,
            "swap": self.swap,
            "real weights": self.real,
        }
        results: dict[str, Any] = {}
        for name, part in parts.items():
            if wanted and name not in ("fast voice", *wanted.split(",")):
                continue
            began = time.perf_counter()
            try:
                results[name] = await part()
            except Exception as error:  # of a service that is being tried out
                results[name] = {"failed": repr(error)}
            print(f"{name} {time.perf_counter() - began:.1f} s")
            rows = results[name] if isinstance(results[name], list) else [results[name]]
            for row in rows:
                print(f"  {json.dumps(row, default=str)}", flush=True)
            if self._result:
                self._result.write_text(json.dumps(results, indent=1))

    async def rows(
        self, call: Callable[[], Awaitable[Timed]], sizes: Sequence[int]
    ) -> list[Figures]:
        await call()  # warm-up
        return [await together(size, call, 2 if size < sizes[-1] else 1) for size in sizes]

    async def fast(self) -> list[Figures]:
        """Makes recordings of about half a minute each, and measures the Fast voice."""
        halves = yaml.safe_load((PROJECT_DIR / "benchmarks/stt/passages.yaml").read_text())
        sentences = [*halves["tuned"], *halves["held_out"]]
        for number in range(5):
            text = " ".join((sentences[number * 11 :] + sentences)[:11])
            audio, seconds = await self._load.record(text)
            self._texts.append(text)
            self._recordings.append(audio)
            self._recordings_s.append(seconds)
        rows = await self.rows(self._fast_voice, (1, 4, 16))
        return [*rows, await together(16, self._fast_voice, 1 if self._tiny else 10)]

    async def listen(self) -> Timed:
        """Seconds that a recording's transcription takes, and seconds of the recording."""
        self._load.number += 1
        place = self._load.number % len(self._recordings)
        began = time.perf_counter()
        await self._load.transcribe(self._recordings[place])
        return time.perf_counter() - began, self._recordings_s[place]

    async def clone(self) -> Figures:
        return {"ready_after_s": await self._load.clone(self._recordings)}

    async def mixed(self) -> dict[str, Figures]:
        """Eight chats, four recordings and one cloned voice, which share the GPU."""
        chats, transcripts, speech = await asyncio.gather(
            together(8, self._load.chat, 3),
            together(4, self.listen, 3),
            together(1, self._clone_voice, 1),
        )
        return {"chat": chats, "recognition": transcripts, "cloned speech": speech}

    async def swap(self) -> dict[str, Any]:
        """Requests while both models are swapped: how many, and which failed."""
        requests = 0
        failed: list[str] = []
        ended = asyncio.Event()

        async def client(call: Callable[[], Awaitable[Timed]]) -> None:
            nonlocal requests
            while not ended.is_set():
                try:
                    await call()
                    requests += 1
                except Exception as error:  # counted
                    failed.append(repr(error))

        calls = [self._load.chat] * 8 + [self.listen] * 2
        clients = [asyncio.create_task(client(call)) for call in calls]
        port = self._service.url.split(":")[-1]
        place = {"ANTIPHON_DATA": str(self._service.data), "PORT": port}
        began = time.perf_counter()
        deployed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deployments.operator", "deploy", str(self._next_config)),
            cwd=self._next_config.parent / "tree",
            env={**os.environ, **place},
        )
        status = await deployed.wait()
        took_s = time.perf_counter() - began
        ended.set()
        await asyncio.gather(*clients)
        return {"status": status, "took_s": took_s, "requests": requests, "failed": failed}

    async def real(self) -> dict[str, Any]:
        """What whisper-base hears in the recordings, and what SmolLM2 135M answers."""
        transcripts = [await self._load.transcribe(audio) for audio in self._recordings]
        counts = [
            word_errors(text, transcript, "en")
            for text, transcript in zip(self._texts, transcripts, strict=True)
        ]
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        body = {"messages": messages, "max_tokens": 40, "temperature": 0}
        answer = await self._load.post("/openai/v1/chat/completions", json=body)
        return {
            "words": sum(words for words, _ in counts),
            "wrong": sum(wrong for _, wrong in counts),
            "heard": transcripts,
            "answer": answer["choices"][0]["message"]["content"],
            "speed": await self.rows(self.listen, (1, 4, 16)),
        }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--result", type=Path, help="writes the figures there, as JSON")
    options.add_argument("--parts", default="", help="only these, such as chat,swap")
    arguments = begin_on_gpu(options, "ray", *chat.LIBRARIES)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_weights(root, arguments.tiny)
        torch.cuda.empty_cache()
        first_config, next_config = write_configs(root, arguments.tiny)
        os.environ["RAY_DASHBOARD_PORT"] = str(free_port())
        command = ["env", "-C", str(root / "tree"), sys.executable, "-m", "deployments.main"]
        with running_service([*command, "--config", str(first_config)], os.environ) as service:
            print(f"ready after {time.monotonic() - service.started:.1f} s", flush=True)
            upgrade_plan(service)
            add_credit(service, 100)
            asyncio.run(measure(service, next_config, arguments))
            if not arguments.tiny:
                subprocess.run(SMI, check=False)


async def measure(service: Service, next_config: Path, options: argparse.Namespace) -> None:
    async with httpx.AsyncClient(
        base_url=service.url,
        headers={"Authorization": f"Bearer {service.key}"},
        timeout=120,
        limits=httpx.Limits(max_connections=None),
    ) as client:
        await Run(Load(client), service, next_config, options).all(options.parts)
