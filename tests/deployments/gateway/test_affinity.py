"""Conversations go back to the replica that has their prompt, and on to another when it is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from ray.serve.handle import DeploymentHandle

from deployments.gateway.affinity import PLACES, conversation, preferred
from models.llm.base import ChatMessage, GenerationRequest
from tests.deployments.conftest import TestCluster
from tests.patience import PATIENCE_S

SYSTEM, HELLO = ChatMessage("system", "Be kind."), ChatMessage("user", "Hello")
FIRST = GenerationRequest((SYSTEM, HELLO), owner="a")


def turn(*more: ChatMessage) -> GenerationRequest:
    return replace(FIRST, messages=(*FIRST.messages, *more))


def test_all_turns_of_a_conversation_have_the_same_key() -> None:
    later = turn(ChatMessage("assistant", "Hi"), ChatMessage("user", "How are you?"))
    assert conversation(FIRST) == conversation(later)
    session = replace(FIRST, cache_key="session")
    assert conversation(session) == conversation(replace(later, cache_key="session"))


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, owner="b"),
        replace(FIRST, cache_key="session"),
        replace(FIRST, owner="a", messages=(SYSTEM, ChatMessage("user", "Bye"))),
        replace(FIRST, messages=(HELLO,)),
        replace(FIRST, messages=()),
        replace(FIRST, owner='a", ["', messages=(ChatMessage("user", '\ud800\x00"], "'),)),
        replace(FIRST, messages=(ChatMessage("system", "x" * 100_000), HELLO)),
        replace(FIRST, cache_key="\ud800", owner="a"),
    ],
)
def test_other_conversations_and_tenants_have_other_keys(other: GenerationRequest) -> None:
    assert conversation(other) != conversation(FIRST)
    assert len(conversation(other)) == 32 and conversation(other).isascii()


def test_conversations_spread_and_few_move_with_a_replica() -> None:
    keys = [str(number) for number in range(3000)]
    three = {key: preferred(key, dict.fromkeys("abc", 0)) for key in keys}
    assert all(900 < count < 1100 for count in Counter(three.values()).values())
    for key in keys:
        without_c = preferred(key, dict.fromkeys("ab", 0))
        assert three[key] in ("c", without_c)


def test_a_replica_keeps_its_chats_within_its_share() -> None:
    lengths = dict.fromkeys("abcd", 0)
    key = "one chat of many requests"
    for _ in range(PLACES):
        lengths[preferred(key, lengths)] += 1
    assert sorted(lengths.values()) == [0, 0, 0, PLACES]
    for _ in range(400 - PLACES):
        lengths[preferred(key, lengths)] += 1
    assert max(lengths.values()) == 100


@pytest.mark.parametrize("lengths", [{"a": 0}, {"a": 10**6}, {"a": 5, "b": 5}, {"a": 0, "b": 9}])
def test_a_replica_is_always_found(lengths: dict[str, int]) -> None:
    assert preferred("\ud7ff" * 1000, lengths) in lengths


@pytest_asyncio.fixture(loop_scope="session")
async def who(ray_cluster: TestCluster) -> AsyncIterator[DeploymentHandle[Any]]:
    from ray import serve

    entry = {
        "name": "Who",
        "num_replicas": 2,
        "ray_actor_options": {"num_cpus": 0},
        "max_ongoing_requests": 100,
        "health_check_period_s": 1,
        "graceful_shutdown_wait_loop_s": 0.1,
        "request_router_config": {
            "request_router_class": "deployments.gateway.affinity:ConversationRouter"
        },
    }
    app = {
        "name": "who",
        "route_prefix": None,
        "import_path": "tests.deployments.gateway.who:build",
        "args": {"any": 1},
        "deployments": [entry],
    }
    async with ray_cluster.with_app(app):
        yield serve.get_deployment_handle("Who", app_name="who")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_a_conversation_stays_and_goes_on_when_its_replica_dies(
    who: DeploymentHandle[Any],
) -> None:
    import ray

    async def ask(key: str, wait_s: float = 0.0) -> str:
        answer: str = await who.options(method_name="ask", session_id=key).remote(wait_s)
        return answer

    keys = [conversation(replace(FIRST, owner=str(number))) for number in range(12)]
    homes = {key: await ask(key) for key in keys}
    assert len({*homes.values()}) == 2
    for _ in range(3):
        assert {key: await ask(key) for key in keys} == homes
    together = await asyncio.gather(*(ask(keys[0], 0.3) for _ in range(16)))
    assert {*together} == {*homes.values()}  # the bound
    assert {await ask("") for _ in range(3)} <= {*homes.values()}

    lost = homes[keys[0]]
    (actor,) = [
        one for one in ray.util.list_named_actors(all_namespaces=True) if lost in one["name"]
    ]
    ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]), no_restart=True)
    deadline = time.monotonic() + PATIENCE_S
    while await ask(keys[0]) == lost:  # its process may answer once more before the signal comes
        assert time.monotonic() < deadline
    while True:
        now = {key: await ask(key) for key in keys}  # no call fails
        kept = [key for key in keys if homes[key] != lost]
        assert lost not in now.values()
        if len({*now.values()}) == 2:
            break
        assert all(now[key] == homes[key] for key in kept)
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
