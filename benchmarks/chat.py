"""Chat over HTTP against bare llama.cpp: tokens a second at 1 and 4 streams, in one run.

    python -m benchmarks.chat                              # serves the application itself
    python -m benchmarks.chat --base-url http://127.0.0.1:8000 --key sk_...

Each round measures bare llama.cpp, then HTTP, on the same prompts; a figure is the best of the
rounds, which other work on the machine disturbs least. "defaults" is llama.cpp with its own
settings of the cache and the OpenMP barrier, "bare" has those of configs/llm.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from benchmarks.hardware import hardware, versions
from configs.chat_schema import ChatConfig, LlamaCppConfig
from configs.load import load_yaml
from configs.settings import weights_dir
from models.llm.llama_cpp import start_server
from models.loading import load_chat
from models.weights.store import WeightStore
from tests.api.chat_server import serve_chat

MODEL = "llm/smollm2"
Ask = Callable[[str, int], int]
"""Takes a prompt and the most tokens; returns how many were made."""


def measure(ask: Ask, prompts: list[str], tokens: int) -> float:
    """Tokens a second of all prompts at once."""
    with ThreadPoolExecutor(len(prompts)) as threads:
        began = time.perf_counter()
        made = sum(threads.map(lambda prompt: ask(prompt, tokens), prompts))
        return made / (time.perf_counter() - began)


def prompts_of(number: int, streams: int) -> list[str]:
    return [f"Tell a long story about the number {number * 10 + i}." for i in range(streams)]


def serve_bare(connection: Connection, defaults: bool) -> None:
    """In a process of its own: answers (prompts, tokens) with tokens a second."""
    config = load_yaml(TypeAdapter(ChatConfig), MODEL)
    assert isinstance(config, LlamaCppConfig)
    if defaults:
        os.environ["GOMP_SPINCOUNT"] = "300000"  # libgomp's own
        config = config.model_copy(update={"cache_type": "f16"})
    path = WeightStore(weights_dir()).folder(config.weights) / "model.gguf"
    server = start_server(config, str(path))

    def ask(prompt: str, tokens: int) -> int:
        made = 0

        def count(chunk: dict[str, Any]) -> None:
            nonlocal made
            made = chunk.get("usage", {}).get("completion_tokens", made)

        server.handle_chat_completions(
            {
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            count,
        )
        return made

    connection.send("ready")
    while job := connection.recv():
        connection.send(measure(ask, *job))


def serve_http(connection: Connection) -> None:
    """In a process of its own: the application over the engine."""
    engine, info = load_chat(MODEL, WeightStore(weights_dir()))
    with tempfile.TemporaryDirectory() as folder, serve_chat(Path(folder), engine, info) as server:
        connection.send((server.url, server.token))
        connection.recv()


def ask_over_http(base_url: str, key: str) -> Ask:
    """Reads the stream line by line, as cheaply as Python can: it shares the cores."""

    def ask(prompt: str, tokens: int) -> int:
        address = urlsplit(base_url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=300)
        body = {
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "save_chat": False,
        }
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        made = 0
        for line in response:
            if b'"usage"' in line:
                made = json.loads(line.removeprefix(b"data: "))["usage"]["completion_tokens"]
        connection.close()
        if response.status != 200 or not made:
            raise SystemExit(f"the service answered {response.status} and no usage")
        return int(made)

    return ask


def start(target: Callable[..., None], *args: Any) -> tuple[Connection, Any]:
    """A process and what it says when it is ready; a false value ends it."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    spawn.Process(target=target, args=(theirs, *args), daemon=True).start()
    return ours, ours.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", help="of a service that runs; else one is started")
    parser.add_argument("--key", help="an API key of that service")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    options = parser.parse_args()

    bare, _ = start(serve_bare, False)
    defaults, _ = start(serve_bare, True)
    stop_http: Connection | None = None
    url, key = options.base_url, options.key
    if not url:
        stop_http, (url, key) = start(serve_http)
    ask = ask_over_http(url, key)

    print(hardware())
    print(versions("xllamacpp"), f"· {MODEL} · {options.tokens} tokens · {options.rounds} rounds")
    for streams in options.streams:
        best = {"defaults": 0.0, "bare": 0.0, "http": 0.0}
        for number in range(options.rounds):
            prompts = prompts_of(number, streams)
            for name, worker in (("defaults", defaults), ("bare", bare)):
                worker.send((prompts, options.tokens))
                best[name] = max(best[name], worker.recv())
            best["http"] = max(best["http"], measure(ask, prompts, options.tokens))
        print(
            f"{streams} streams: HTTP {best['http']:.0f} tokens/s, "
            f"bare {best['bare']:.0f} (ratio {best['http'] / best['bare']:.2f}), "
            f"defaults {best['defaults']:.0f} (ratio {best['http'] / best['defaults']:.2f})"
        )
    bare.send(None)
    defaults.send(None)
    if stop_http is not None:
        stop_http.send(None)


if __name__ == "__main__":
    main()
