"""Chat over HTTP against bare llama.cpp, in one run: tokens a second of 1, 4 and 8 streams, the
first token, and the first token of a continued long chat.

    python -m benchmarks.chat.speed                              # serves the application itself
    python -m benchmarks.chat.speed --base-url http://127.0.0.1:8000 --key sk_...

Each round measures bare llama.cpp, then HTTP, on the same prompts; tokens a second are the best of
the rounds, which other load on the machine affects least, and first tokens the median.
"defaults" is llama.cpp with its default cache type and OpenMP spin count, "bare" has the settings
of configs/llm.
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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from benchmarks.hardware import hardware, versions
from configs.load import load_yaml
from configs.schema.models.llm import ChatConfig, LlamaCppConfig
from configs.settings import weights_dir
from models.llm.llama_cpp import start_server
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from tests.api.chat_server import serve_chat

MODEL = "llm/smollm2"


@dataclass(frozen=True)
class Answer:
    tokens: int
    first_s: float  # from the call to the first text


@dataclass(frozen=True)
class Speed:
    tokens_per_s: float  # of all streams together
    first_s: float  # median


Chat = list[str]
"""Messages of the user and the model in turn; the user's is the last."""
Ask = Callable[[Chat, int], Answer]
"""Sends a chat with a limit of tokens; returns the Answer."""


def measure(ask: Ask, chats: list[Chat], tokens: int) -> Speed:
    """Sends all chats concurrently."""
    with ThreadPoolExecutor(len(chats)) as threads:
        began = time.perf_counter()
        answers = list(threads.map(lambda chat: ask(chat, tokens), chats))
        took_s = time.perf_counter() - began
    made = sum(answer.tokens for answer in answers)
    return Speed(made / took_s, median(answer.first_s for answer in answers))


def messages_of(chat: Chat) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(chat)]


def chats_of(number: int, streams: int) -> list[Chat]:
    return [[f"Tell a long story about the number {number * 10 + i}."] for i in range(streams)]


def long_chat(number: int) -> Chat:
    """About 2,000 tokens, of which the last message has about 10."""
    filler = f"In town {number} there are many streets, old houses and a harbour by the sea. " * 12
    return [f"{number}. {filler}" if i < 8 else f"And then, {number}?" for i in range(9)]


def serve_bare(connection: Connection, defaults: bool) -> None:
    """Runs in a process of its own: receives (chats, tokens) and sends their Speed."""
    config = load_yaml(TypeAdapter(ChatConfig), MODEL)
    assert isinstance(config, LlamaCppConfig)
    if defaults:
        os.environ["GOMP_SPINCOUNT"] = "300000"  # libgomp's own
        config = config.model_copy(update={"cache_type": "f16"})
    path = WeightStore(weights_dir()).folder(config.weights) / "model.gguf"
    server = start_server(config, str(path))

    def ask(chat: Chat, tokens: int) -> Answer:
        began = time.perf_counter()
        made, first_s = 0, 0.0

        def count(chunk: dict[str, Any]) -> None:
            nonlocal made, first_s
            if not first_s and any(choice["delta"].get("content") for choice in chunk["choices"]):
                first_s = time.perf_counter() - began
            made = chunk.get("usage", {}).get("completion_tokens", made)

        server.handle_chat_completions(
            {
                "messages": messages_of(chat),
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            count,
        )
        return Answer(made, first_s)

    connection.send("ready")
    while job := connection.recv():
        connection.send(measure(ask, *job))


def serve_http(connection: Connection) -> None:
    """Runs in a process of its own: serves the application over the engine."""
    engine, info = load_model(CHAT, MODEL, WeightStore(weights_dir()))
    with tempfile.TemporaryDirectory() as folder, serve_chat(Path(folder), engine, info) as server:
        connection.send((server.url, server.token))
        connection.recv()


def ask_over_http(base_url: str, key: str) -> Ask:
    """A client that reads the stream line by line at little cost: it shares the server's cores."""

    def ask(chat: Chat, tokens: int) -> Answer:
        began = time.perf_counter()
        address = urlsplit(base_url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=300)
        body = {
            "messages": messages_of(chat),
            "max_tokens": tokens,
            "temperature": 0,
            "save_chat": False,
        }
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        made, first_s = 0, 0.0
        for line in response:
            if not first_s and b'"content": "' in line and b'"content": ""' not in line:
                first_s = time.perf_counter() - began
            if b'"usage"' in line:
                made = json.loads(line.removeprefix(b"data: "))["usage"]["completion_tokens"]
        connection.close()
        if response.status != 200 or not made:
            raise SystemExit(f"the service answered {response.status} and no usage")
        return Answer(int(made), first_s)

    return ask


def start(target: Callable[..., None], *args: Any) -> tuple[Connection, Any]:
    """A connection to a new process, and its first message; sending a false value ends it."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    spawn.Process(target=target, args=(theirs, *args), daemon=True).start()
    return ours, ours.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", help="of a running service; else one is started")
    parser.add_argument("--key", help="an API key of that service")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--firsts", type=int, default=15, help="number of first tokens measured")
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

    def ask_bare(chats: list[Chat], tokens: int, worker: Connection = bare) -> Speed:
        worker.send((chats, tokens))
        return cast(Speed, worker.recv())

    for streams in options.streams:
        best = {"defaults": 0.0, "bare": 0.0, "http": 0.0}
        for number in range(options.rounds):
            chats = chats_of(number, streams)
            for name, speed in (
                ("defaults", ask_bare(chats, options.tokens, defaults)),
                ("bare", ask_bare(chats, options.tokens)),
                ("http", measure(ask, chats, options.tokens)),
            ):
                best[name] = max(best[name], speed.tokens_per_s)
        print(
            f"{streams} streams: HTTP {best['http']:.0f} tokens/s, "
            f"bare {best['bare']:.0f} (ratio {best['http'] / best['bare']:.2f}), "
            f"defaults {best['defaults']:.0f} (ratio {best['http'] / best['defaults']:.2f})",
            flush=True,
        )
    firsts: dict[str, list[float]] = {"bare": [], "HTTP": [], "new": [], "goes on": []}
    for number in range(100, 100 + options.firsts):
        chats = chats_of(number, 1)
        firsts["bare"].append(ask_bare(chats, 8).first_s)
        firsts["HTTP"].append(measure(ask, chats, 8).first_s)
    for number in range(3):
        chat = long_chat(number)
        firsts["new"].append(measure(ask, [chat], 8).first_s)
        measure(ask, chats_of(200 + number, 6), 8)  # other requests in between
        chat = [*chat, "It was so.", "And after that?"]
        firsts["goes on"].append(measure(ask, [chat], 8).first_s)
    shown = {name: f"{median(times) * 1000:.0f} ms" for name, times in firsts.items()}
    print(f"first token: HTTP {shown['HTTP']}, bare {shown['bare']}")
    print(f"first token of a long chat: {shown['new']} when new, {shown['goes on']} when continued")
    bare.send(None)
    defaults.send(None)
    if stop_http is not None:
        stop_http.send(None)


if __name__ == "__main__":
    main()
