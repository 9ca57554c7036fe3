"""The code path of one speech request: how many files and nested generators it runs through.

    python -m benchmarks.tts.request_path [--model tts/hibari] [--list]

The application, the port over a handle and a replica run in this process; only Ray between them is
missing. Files are those of the source in which a function runs. The generators are those that are
being pulled, one inside the other, while the engine computes a chunk.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import AsyncGeneratorType, FrameType, GeneratorType
from typing import Any, cast

from fastapi import FastAPI
from ray.serve.handle import DeploymentHandle

from api.app import create_app
from benchmarks.plans import verdict
from configs.settings import PROJECT_DIR, weights_dir
from deployments.gateway import handles
from deployments.gateway.handles import TTSModelHandle
from deployments.replicas.tts import TTSDeployment
from models.registry import TTS, load_model
from models.weights.store import WeightStore
from pipelines.ports import TTSModel
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.engines import TONE

SOURCE = (
    "api",
    "configs",
    "db",
    "deployments",
    "models",
    "pipelines",
    "telemetry",
)
TEXT = "The old harbour was quiet in the early morning"  # one chunk: no other is in flight
MOST_FILES = 40  # fewer on the path of /tts-synthesize
MOST_GENERATORS = 9  # at most on the path of /tts-stream
CHUNK_S = 0.02  # delay of the engine at each chunk, so that the reader has to wait for it


@dataclass
class Watcher:
    """Profiles this thread and those that begin later; results are of the last request."""

    engine_file: str
    files: set[str] = field(default_factory=set)
    chain: list[str] = field(default_factory=list)  # the longest seen
    active: bool = False

    def start(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def reset(self) -> None:
        self.files.clear()
        self.chain.clear()
        self.active = True

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.active or event != "call":
            return
        path = _source_path(frame.f_code.co_filename)
        if path is None:
            return
        self.files.add(path)
        if path == self.engine_file and frame.f_code.co_name == "synthesize":
            time.sleep(CHUNK_S)
            if len(running := _pulled_generators()) > len(self.chain):
                self.chain = running


def _source_path(filename: str) -> str | None:
    if not filename.startswith(f"{PROJECT_DIR}/"):
        return None
    path = filename.removeprefix(f"{PROJECT_DIR}/")
    return path if path.partition("/")[0] in SOURCE else None


def _pulled_generators() -> list[str]:
    """Generators of the source that are running now, waiting for their next item."""
    found = []
    for one in gc.get_objects():
        if isinstance(one, AsyncGeneratorType):
            code, pulled = one.ag_code, one.ag_running
        elif isinstance(one, GeneratorType):
            code, pulled = one.gi_code, one.gi_running
        else:
            continue
        path = _source_path(code.co_filename)
        if pulled and path is not None:
            found.append(f"{path}: {code.co_qualname}")
    return sorted(set(found))  # of two chunks in flight, one


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


def local_speaker(replica: TTSDeployment) -> TTSModelHandle:
    """The port over a replica of this process."""
    setattr(handles, "availability", lambda _: "ready")  # noqa: B010  # the handle is not Ray's
    return TTSModelHandle("one", cast(DeploymentHandle[Any], LocalHandle(replica)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=TONE, help="the engine's configuration")
    parser.add_argument("--list", action="store_true", help="name the files and generators")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), arguments.model, names=arguments.list))


async def measure(folder: Path, model: str, *, names: bool) -> None:
    """Prints both figures."""
    engine, _ = load_model(TTS, model, WeightStore(weights_dir()))
    engine_code = type(engine).synthesize.__code__
    watcher = Watcher(str(_source_path(engine_code.co_filename)))
    speakers: dict[str, TTSModel] = {}
    services = local_services(local_settings(folder), speakers=speakers)
    watcher.start()
    replica = TTSDeployment()
    await replica.reconfigure({"model": model})
    speakers["one"] = local_speaker(replica)
    app = create_app(services)
    key = await services.platform.accounts.ensure_first_workspace()

    async def ask(path: str, **body: Any) -> None:
        """Profiles one request, after others of its kind have filled all caches."""
        for _ in range(3):
            watcher.reset()
            await call(app, path, str(key), {"text": TEXT, "output_format": "pcm", **body})
        watcher.active = False

    await ask("/tts-synthesize", output_format="mp3")
    files = sorted(watcher.files)
    await ask("/tts-stream")
    chain = watcher.chain
    met = verdict(len(files) < MOST_FILES)
    print(f"/tts-synthesize: {len(files)} files (target: < {MOST_FILES}) {met}")
    if names:
        print(*(f"  {one}" for one in files), sep="\n")
    met = verdict(len(chain) <= MOST_GENERATORS)
    print(f"/tts-stream: {len(chain)} generators (target: <= {MOST_GENERATORS}) {met}")
    if names:
        print(*(f"  {one}" for one in chain), sep="\n")
    await services.speech.decoder.close()
    services.infrastructure.database.close()


async def call(app: FastAPI, path: str, key: str, body: dict[str, Any]) -> None:
    """Sends a request to the application without a server. Raises RuntimeError when it fails."""
    headers = [
        (b"authorization", f"Bearer {key}".encode()),
        (b"content-type", b"application/json"),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    unread = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if unread:
            return unread.pop()
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"{path} answered {message['status']}")
        if message["type"] == "http.response.body" and not message.get("more_body"):
            ended.set()

    await app(scope, receive, send)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
