"""Chats on two replicas of the language model: time to the first token and the prompt tokens found
in a prefix cache, by how the replica is chosen.

    python -m benchmarks.chat.affinity [none|hash|bounded]     # weights of llm/smollm2
    python -m benchmarks.chat.affinity bounded --chats 16 --at-once 16 --same-start

With `--same-start` all chats begin with the same messages, so that their key is the same.

`none` is Ray Serve's choice of the emptier of two, `hash` its ConsistentHashRouter, `bounded` that
of serve_config.yaml. The first turns, which no cache can have, are not counted. Both replicas share
the cores of this machine.
"""

import argparse
import asyncio
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.report import hardware
from deployments.cluster import node, serve_api

node.prepare_environment()  # before anything here imports ray

from deployments.gateway.handles import ChatModelHandle, ModelDirectory  # noqa: E402
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions  # noqa: E402

ROUTERS = {
    "none": "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
    "hash": "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter",
    "bounded": "deployments.gateway.affinity:ConversationRouter",
}
SAMPLING = SamplingOptions(temperature=0, max_tokens=32)
WORDS = "river stone market window garden winter engine letter bridge forest candle music".split()


@dataclass(frozen=True, slots=True)
class Turn:
    first_s: float
    prompt: int
    cached: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("router", nargs="?", choices=tuple(ROUTERS), default="bounded")
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--same-start", action="store_true")
    options = parser.parse_args()
    print(hardware())
    import ray
    from ray import serve

    serve_api.deploy(node.start(), {"applications": [models(ROUTERS[options.router])]})
    while not (found := serve.status().applications) or found["models"].status != "RUNNING":
        time.sleep(0.5)
    turns = asyncio.run(
        measure(options.chats, options.turns, options.at_once, same_start=options.same_start)
    )
    ray.shutdown()
    first = statistics.quantiles([turn.first_s for turn in turns], n=10)
    cached = sum(turn.cached for turn in turns) / sum(turn.prompt for turn in turns)
    print(
        f"{options.router}, {options.at_once} of {options.chats} chats at once: first token "
        f"{first[4]:.2f} s (p50), {first[8]:.2f} s (p90), {100 * cached:.0f} % of prompts cached"
    )


def models(router: str) -> dict[str, Any]:
    chat = {
        "name": "Chat",
        "num_replicas": 2,
        "user_config": {"model": "llm/smollm2"},
        "ray_actor_options": {"num_cpus": 0.1},
        "max_ongoing_requests": 128,
        "request_router_config": {"request_router_class": router},
    }
    return {
        "name": "models",
        "route_prefix": None,
        "import_path": "deployments.app:build_models",
        "args": {"chat": ["Chat"]},
        "deployments": [{"name": "ModelIndex"}, chat],
    }


async def measure(chats: int, turns: int, at_once: int, *, same_start: bool) -> list[Turn]:
    from ray import serve

    directory = ModelDirectory("models")
    await directory.refresh()
    model = directory.chat_models["Chat"]
    places, made = asyncio.Semaphore(at_once), list[Turn]()

    async def talk(number: int) -> None:
        chance = random.Random(0 if same_start else number)
        said = [ChatMessage("system", " ".join(chance.choices(WORDS, k=60)))]
        for turn in range(turns):
            if turn == 1:
                chance.seed(number)
            said.append(ChatMessage("user", " ".join(chance.choices(WORDS, k=60))))
            async with places:
                text, measured = await ask(
                    model, said, "" if same_start else f"tenant {number % 4}"
                )
            said.append(ChatMessage("assistant", text))
            if turn:
                made.append(measured)

    await asyncio.gather(*(ask(model, [ChatMessage("user", str(one))], "") for one in range(8)))
    await asyncio.gather(*map(talk, range(chats)))
    await asyncio.to_thread(serve.shutdown)  # while the handles' loop runs
    return made


async def ask(model: ChatModelHandle, said: list[ChatMessage], owner: str) -> tuple[str, Turn]:
    began, first_s, text, usage = time.perf_counter(), 0.0, "", None
    async for delta in model.generate(GenerationRequest(tuple(said), SAMPLING, owner=owner)):
        first_s = first_s or time.perf_counter() - began
        text += delta.text
        usage = delta.usage or usage
    assert usage is not None
    return text, Turn(first_s, usage.prompt_tokens, usage.cached_tokens)


if __name__ == "__main__":
    main()
