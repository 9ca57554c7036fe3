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
import time
from typing import Any

from benchmarks.harness.chat import TimedAnswer, question, timed
from benchmarks.harness.report import begin, parser, percentile
from deployments.cluster import node, serve_api

node.prepare_environment()  # before anything here imports ray

from deployments.gateway.handles import ModelDirectory  # noqa: E402
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions  # noqa: E402

ROUTERS = {
    "none": "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
    "hash": "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter",
    "bounded": "deployments.gateway.affinity:ConversationRouter",
}
SAMPLING = SamplingOptions(temperature=0, max_tokens=32)
WORDS = "river stone market window garden winter engine letter bridge forest candle music".split()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("router", nargs="?", choices=tuple(ROUTERS), default="bounded")
    options.add_argument("--chats", type=int, default=8)
    options.add_argument("--turns", type=int, default=4)
    options.add_argument("--at-once", type=int, default=3)
    options.add_argument("--same-start", action="store_true")
    arguments = begin(options)
    import ray
    from ray import serve

    serve_api.deploy(node.start(), {"applications": [models(ROUTERS[arguments.router])]})
    while not (apps := serve.status().applications) or apps["models"].status != "RUNNING":
        time.sleep(0.5)
    turns = asyncio.run(measure(arguments))
    ray.shutdown()
    firsts_s = [turn.first_s for turn in turns]
    cached = sum(turn.cached_tokens for turn in turns) / sum(turn.prompt_tokens for turn in turns)
    print(
        f"{arguments.router}, {arguments.at_once} of {arguments.chats} chats at once: first token "
        f"{percentile(firsts_s, 50):.2f} s (p50), {percentile(firsts_s, 90):.2f} s (p90), "
        f"{100 * cached:.0f} % of prompts cached"
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


async def measure(arguments: argparse.Namespace) -> list[TimedAnswer]:
    """All turns of the chats but the first ones."""
    from ray import serve

    directory = ModelDirectory("models")
    await directory.refresh()
    model = directory.chat_models["Chat"]
    places = asyncio.Semaphore(arguments.at_once)
    turns: list[TimedAnswer] = []

    async def talk(number: int) -> None:
        chance = random.Random(0 if arguments.same_start else number)
        owner = "" if arguments.same_start else f"tenant {number % 4}"
        messages = [ChatMessage("system", " ".join(chance.choices(WORDS, k=60)))]
        for turn in range(arguments.turns):
            if turn == 1:
                chance.seed(number)
            messages.append(ChatMessage("user", " ".join(chance.choices(WORDS, k=60))))
            request = GenerationRequest(tuple(messages), SAMPLING, owner=owner)
            async with places:
                result = await timed(model.generate, request)
            messages.append(ChatMessage("assistant", result.answer.text))
            if turn:
                turns.append(result)

    warm = (timed(model.generate, question(str(number), 32)) for number in range(8))
    await asyncio.gather(*warm)
    await asyncio.gather(*map(talk, range(arguments.chats)))
    await asyncio.to_thread(serve.shutdown)  # while the handles' loop runs
    return turns


if __name__ == "__main__":
    main()
