"""Chat over HTTP against bare llama.cpp, in one run: tokens a second of 1, 4 and 8 streams and of a
long prompt, on idle cores and beside a process that keeps one of them busy, the first token, and
the first token of a continued long chat.

    python -m benchmarks.chat.speed                              # serves the application itself
    python -m benchmarks.chat.speed --base-url http://127.0.0.1:8000 --key sk_...
    python -m benchmarks.chat.speed --model llm/qwen2_5_coder_1_5b --tokens 64 --rounds 3 --idle

Each round measures bare llama.cpp and HTTP on the same prompts, in random order; speeds and first
tokens are medians of the rounds, and ratios the medians of those within a round, since the speed of
a machine drifts by a fifth. "defaults" is llama.cpp with its default cache type, batch and
barriers, "bare" has the settings of configs/llm and the engine's barriers.
"""

import argparse
import ctypes
import http.client
import json
import multiprocessing
import random
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from benchmarks.harness.report import hardware, versions
from configs.load import load_yaml
from configs.schema.models.llm import ChatConfig, LlamaCppConfig
from configs.settings import weights_dir
from models.llm.llama_cpp import start_server
from models.registry import CHAT, load_model
from models.runtimes.openmp import AdaptiveBarriers
from models.weights.store import WeightStore
from tests.api.chat_server import serve_chat


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


def long_prompt(number: int) -> list[Chat]:
    """About 700 tokens."""
    return [
        [f"{number}. " + "In this town there are many streets, old houses and a harbour. " * 45]
    ]


def long_chat(number: int) -> Chat:
    """About 2,000 tokens, of which the last message has about 10."""
    filler = f"In town {number} there are many streets, old houses and a harbour by the sea. " * 12
    return [f"{number}. {filler}" if i < 8 else f"And then, {number}?" for i in range(9)]


def serve_bare(connection: Connection, model: str, defaults: bool) -> None:
    """Runs in a process of its own: receives (chats, tokens) and sends their Speed."""
    config = load_yaml(TypeAdapter(ChatConfig), model)
    assert isinstance(config, LlamaCppConfig)
    if defaults:
        config = config.model_copy(update={"cache_type": "f16", "batch_tokens": 2048})
    path = WeightStore(weights_dir()).folder(config.weights) / "model.gguf"
    server = start_server(config, str(path))
    barriers = AdaptiveBarriers(config.threads)

    def ask(chat: Chat, tokens: int) -> Answer:
        began = time.perf_counter()
        made, first_s = 0, 0.0

        def count(chunk: dict[str, Any]) -> None:
            nonlocal made, first_s
            if not defaults:
                barriers.look()
            said = any(choice["delta"].get("content") for choice in chunk.get("choices", ()))
            if said and not first_s:
                first_s = time.perf_counter() - began
            made = chunk.get("usage", {}).get("completion_tokens", made)

        server.handle_chat_completions(
            {
                "messages": messages_of(chat),
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": not defaults,
            },
            count,
        )
        return Answer(made, first_s)

    connection.send("ready")
    while job := connection.recv():
        connection.send(measure(ask, *job))


def serve_http(connection: Connection, model: str) -> None:
    """Runs in a process of its own: serves the application over the engine."""
    engine, info = load_model(CHAT, model, WeightStore(weights_dir()))
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


def keep_busy() -> None:
    """Runs in a process of its own, which ends with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    while True:
        pass


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
    parser.add_argument("--model", default="llm/smollm2", help="its configuration")
    parser.add_argument("--idle", action="store_true", help="leave out the runs with a busy core")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--firsts", type=int, default=15, help="number of first tokens measured")
    options = parser.parse_args()

    bare, _ = start(serve_bare, options.model, False)
    defaults, _ = start(serve_bare, options.model, True)
    stop_http: Connection | None = None
    url, key = options.base_url, options.key
    if not url:
        stop_http, (url, key) = start(serve_http, options.model)
    ask = ask_over_http(url, key)

    print(hardware())
    print(
        versions("xllamacpp"),
        f"· {options.model} · {options.tokens} tokens · {options.rounds} rounds",
    )

    def ask_bare(chats: list[Chat], tokens: int, worker: Connection = bare) -> Speed:
        worker.send((chats, tokens))
        return cast(Speed, worker.recv())

    def compare(name: str, chats: Callable[[int], list[Chat]], tokens: int, is_busy: bool) -> None:
        ways: dict[str, Callable[[list[Chat], int], Speed]] = {
            "defaults": partial(ask_bare, worker=defaults),
            "bare": ask_bare,
            "http": partial(measure, ask),
        }
        rounds: list[dict[str, float]] = []
        for number in range(options.rounds):
            found = {}
            for way in random.sample(list(ways), len(ways)):
                speed = ways[way](chats(number), tokens)
                found[way] = speed.tokens_per_s if tokens > 1 else 1 / speed.first_s
            rounds.append(found)

        def against(way: str) -> str:
            speed = median(found[way] for found in rounds)
            ratio = median(found["http"] / found[way] for found in rounds)
            return f"{way} {speed:.3g} (ratio {ratio:.2f})"

        unit = "tokens/s" if tokens > 1 else "prompts/s"
        print(
            f"{name}{', one core busy' if is_busy else ''}: "
            f"HTTP {median(found['http'] for found in rounds):.3g} {unit}, "
            f"{against('bare')}, {against('defaults')}",
            flush=True,
        )

    for one in (partial(ask_bare, worker=defaults), ask_bare, partial(measure, ask)):
        one(chats_of(90, 8), 8)  # then all slots hold the system prompt
    for is_busy in (False,) if options.idle else (False, True):
        busy = multiprocessing.get_context("spawn").Process(target=keep_busy, daemon=True)
        if is_busy:
            busy.start()
        for streams in options.streams:
            several = partial(chats_of, streams=streams)
            compare(f"{streams} streams", several, options.tokens, is_busy)
        compare("a prompt of 700 tokens", long_prompt, 1, is_busy)
        if is_busy:
            busy.kill()
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
