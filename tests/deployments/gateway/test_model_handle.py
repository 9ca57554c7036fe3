"""Model handles report a model as available or lost while its replicas stop and restart."""

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
    """A fake deployment handle: `describe` answers, or never returns while `down`."""

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


async def test_a_call_that_ray_serve_did_not_accept_is_lost(
    model: ModelHandle, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under overload Ray raised a bare RuntimeError, which the client got as 500."""

    async def not_accepted() -> ModelInfo:
        raise RuntimeError(f"{handles.UNACCEPTED}: .")

    monkeypatch.setattr(replica, "_describe", not_accepted)
    with pytest.raises(EngineLost, match="did not take the call"):
        with handles.engine_errors("STT"):
            await replica.remote()
    with pytest.raises(RuntimeError, match="another"):
        with handles.engine_errors("STT"):
            raise RuntimeError("another")


async def test_a_served_request_clears_a_cached_engine_lost(
    model: ModelHandle, replica: Replica
) -> None:
    replica.down = True
    with pytest.raises(EngineLost):
        await model.describe()
    replica.down = False
    model.works()
    assert await model.describe() is INFO


async def test_a_describe_call_is_repeated_if_a_request_was_served_meanwhile(
    model: ModelHandle, replica: Replica
) -> None:
    replica.down = True
    asking = asyncio.create_task(model.describe())
    await asyncio.sleep(0.01)
    replica.down = False  # its successor runs, but did not get the pending call
    model.works()
    assert await asking is INFO
    assert replica.asked == 2
