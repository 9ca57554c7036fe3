"""Chat over HTTP against bare llama.cpp, in one run: tokens a second and time to the first token.

Speeds are those of 1, 4 and 8 streams and of a long prompt, on idle cores and beside a process that
keeps one core busy. The first token is also timed for a long chat, both new and continued.

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast
from urllib.parse import urlsplit

from benchmarks.harness.chat import llama_config
from benchmarks.harness.processes import Worker, workers
from benchmarks.harness.report import begin, parser
from benchmarks.harness.service import add_service_options
from benchmarks.harness.speech import store
from models.llm.llama_cpp import start_server
from models.registry import CHAT, load_model
from models.runtimes.openmp import AdaptiveBarriers
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
Way = Callable[[Sequence[Chat], int], Speed]
"""Sends chats at once with a limit of tokens each; returns their Speed."""


def measure(ask: Ask, chats: Sequence[Chat], tokens: int) -> Speed:
    """Send all chats concurrently."""
    with ThreadPoolExecutor(len(chats)) as threads:
        began = time.perf_counter()
        answers = list(threads.map(lambda chat: ask(chat, tokens), chats))
        took_s = time.perf_counter() - began
    total = sum(answer.tokens for answer in answers)
    return Speed(total / took_s, median(answer.first_s for answer in answers))


def messages_of(chat: Chat) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[place % 2], "content": text} for place, text in enumerate(chat)]


def stories(number: int, streams: int) -> list[Chat]:
    return [[f"Tell a long story about the number {number * 10 + i}."] for i in range(streams)]


def long_prompt(number: int) -> list[Chat]:
    """A chat of about 700 tokens."""
    filler = "In this town there are many streets, old houses and a harbour. " * 45
    return [[f"{number}. {filler}"]]


def long_chat(number: int) -> Chat:
    """About 2,000 tokens, of which the last message has about 10."""
    filler = f"In town {number} there are many streets, old houses and a harbour by the sea. " * 12
    return [f"{number}. {filler}" if i < 8 else f"And then, {number}?" for i in range(9)]


def serve_bare(pipe: Any, model: str, defaults: bool) -> None:
    """Runs in a process of its own: receives chats and a limit of tokens, and sends their Speed."""
    config = llama_config(model)
    if defaults:
        config = config.model_copy(update={"cache_type": "f16", "batch_tokens": 2048})
    server = start_server(config, str(store().folder(config.weights) / "model.gguf"))
    barriers = AdaptiveBarriers(config.threads)

    def ask(chat: Chat, tokens: int) -> Answer:
        began = time.perf_counter()
        count = 0
        first_s = 0.0

        def take(chunk: dict[str, Any]) -> None:
            nonlocal count, first_s
            if not defaults:
                barriers.look()
            has_text = any(choice["delta"].get("content") for choice in chunk.get("choices", ()))
            if has_text and not first_s:
                first_s = time.perf_counter() - began
            count = chunk.get("usage", {}).get("completion_tokens", count)

        server.handle_chat_completions(
            {
                "messages": messages_of(chat),
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": not defaults,
            },
            take,
        )
        return Answer(count, first_s)

    pipe.send("ready")
    while job := pipe.recv():
        chats, tokens = job
        pipe.send(measure(ask, chats, tokens))


def serve_http(pipe: Any, model: str) -> None:
    """Runs in a process of its own: serves the application over the engine."""
    engine, info = load_model(CHAT, model, store())
    with tempfile.TemporaryDirectory() as folder, serve_chat(Path(folder), engine, info) as server:
        pipe.send((server.url, server.token))
        pipe.recv()


def ask_over_http(base_url: str, key: str, chat: Chat, tokens: int) -> Answer:
    """Read the stream line by line at little cost: the client shares the server's cores."""
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
    count = 0
    first_s = 0.0
    for line in response:
        if not first_s and b'"content": "' in line and b'"content": ""' not in line:
            first_s = time.perf_counter() - began
        if b'"usage"' in line:
            count = json.loads(line.removeprefix(b"data: "))["usage"]["completion_tokens"]
    connection.close()
    if response.status != 200 or not count:
        raise SystemExit(f"the service answered {response.status} and no usage")
    return Answer(count, first_s)


def ask_worker(worker: Worker, chats: Sequence[Chat], tokens: int) -> Speed:
    return cast(Speed, worker.ask((chats, tokens)))


def keep_busy() -> None:
    """Runs in a process of its own, which ends with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    while True:
        pass


@contextmanager
def busy_core() -> Iterator[None]:
    busy = multiprocessing.get_context("spawn").Process(target=keep_busy, daemon=True)
    busy.start()
    try:
        yield
    finally:
        busy.kill()


def compare(
    title: str,
    ways: dict[str, Way],
    chats: Callable[[int], Sequence[Chat]],
    tokens: int,
    rounds: int,
) -> None:
    """Print the median speed of each way, and the ratio of HTTP to each of the others."""
    speeds: list[dict[str, float]] = []
    for number in range(rounds):
        of_round = {}
        for way in random.sample(list(ways), len(ways)):
            speed = ways[way](chats(number), tokens)
            of_round[way] = speed.tokens_per_s if tokens > 1 else 1 / speed.first_s
        speeds.append(of_round)
    others = [
        f"{way} {median(of_round[way] for of_round in speeds):.3g} "
        f"(ratio {median(of_round['http'] / of_round[way] for of_round in speeds):.2f})"
        for way in ("bare", "defaults")
    ]
    unit = "tokens/s" if tokens > 1 else "prompts/s"
    http_speed = median(of_round["http"] for of_round in speeds)
    print(f"{title}: HTTP {http_speed:.3g} {unit}, {', '.join(others)}", flush=True)


def compare_all(ways: dict[str, Way], arguments: argparse.Namespace, suffix: str = "") -> None:
    for streams in arguments.streams:
        chats = partial(stories, streams=streams)
        title = f"{streams} streams{suffix}"
        compare(title, ways, chats, arguments.tokens, arguments.rounds)
    compare(f"a prompt of 700 tokens{suffix}", ways, long_prompt, 1, arguments.rounds)


def first_tokens(ways: dict[str, Way], count: int) -> None:
    """Print the times to the first token of short chats, and of long ones, new and continued."""
    times_s: dict[str, list[float]] = {"bare": [], "http": [], "new": [], "goes on": []}
    for number in range(100, 100 + count):
        for way in ("bare", "http"):
            times_s[way].append(ways[way](stories(number, 1), 8).first_s)
    over_http = ways["http"]
    for number in range(3):
        chat = long_chat(number)
        times_s["new"].append(over_http([chat], 8).first_s)
        over_http(stories(200 + number, 6), 8)  # other requests in between
        chat = [*chat, "It was so.", "And after that?"]
        times_s["goes on"].append(over_http([chat], 8).first_s)
    texts = {name: f"{median(times) * 1000:.0f} ms" for name, times in times_s.items()}
    print(f"first token: HTTP {texts['http']}, bare {texts['bare']}")
    print(f"first token of a long chat: {texts['new']} when new, {texts['goes on']} when continued")


def main() -> None:
    options = parser(__doc__)
    add_service_options(options)
    options.add_argument("--model", default="llm/smollm2", help="its configuration")
    options.add_argument("--idle", action="store_true", help="leave out the runs with a busy core")
    options.add_argument("--tokens", type=int, default=200)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8])
    options.add_argument("--firsts", type=int, default=15, help="number of first tokens measured")
    arguments = begin(options, "xllamacpp")
    print(f"{arguments.model} · {arguments.tokens} tokens · {arguments.rounds} rounds")
    with ExitStack() as stack:

        def start(target: Callable[..., None], *more: Any) -> Worker:
            return stack.enter_context(workers(1, target, arguments.model, *more))[0]

        bare = start(serve_bare, False)
        defaults = start(serve_bare, True)
        url, key = arguments.base_url, arguments.key
        if not url:
            url, key = start(serve_http).greeting
        ways: dict[str, Way] = {
            "defaults": partial(ask_worker, defaults),
            "bare": partial(ask_worker, bare),
            "http": partial(measure, partial(ask_over_http, url, key)),
        }
        for way in ways.values():
            way(stories(90, 8), 8)  # then all slots hold the system prompt
        compare_all(ways, arguments)
        if not arguments.idle:
            with busy_core():
                compare_all(ways, arguments, ", one core busy")
        first_tokens(ways, arguments.firsts)


if __name__ == "__main__":
    main()
