"""What is said of a model while its replicas come and go."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from ray.serve.handle import DeploymentHandle

from deployments.gateway import handles
from deployments.gateway.handles import ModelHandle
from models.base import ModelInfo
from models.errors import EngineLost

INFO = cast(ModelInfo, object())


class Replica:
    """Stands for a handle: answers, or never does when it is down."""

    def __init__(self) -> None:
        self.down = False
        self.asked = 0
        self.describe = self

    def remote(self) -> Awaitable[Any]:
        return self._describe()

    async def _describe(self) -> ModelInfo:
        self.asked += 1
        if self.down:
            await asyncio.Event().wait()
        return INFO


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(handles, "DESCRIBE_TIMEOUT_S", 0.05)
    return Replica()


@pytest.fixture
def model(replica: Replica) -> ModelHandle:
    return ModelHandle("STT", cast("DeploymentHandle[Any]", replica))


async def test_a_model_without_a_replica_is_lost(model: ModelHandle, replica: Replica) -> None:
    replica.down = True
    with pytest.raises(EngineLost, match="STT"):
        await model.describe()


async def test_a_served_request_outweighs_an_answer_that_it_is_lost(
    model: ModelHandle, replica: Replica
) -> None:
    replica.down = True
    with pytest.raises(EngineLost):
        await model.describe()
    replica.down = False
    model.works()
    assert await model.describe() is INFO


async def test_a_served_request_outweighs_a_question_that_is_still_open(
    model: ModelHandle, replica: Replica
) -> None:
    replica.down = True
    asking = asyncio.create_task(model.describe())
    await asyncio.sleep(0.01)
    replica.down = False  # its successor is there, but does not know of the question
    model.works()
    assert await asking is INFO
    assert replica.asked == 2
