"""The health check by which Serve finds a replica that hangs; no cluster is needed."""

import inspect
from typing import Any

import pytest

from deployments.replicas.chat import ChatDeployment
from deployments.replicas.model import ModelDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment


@pytest.mark.parametrize("deployment", [TTSDeployment, STTDeployment, ChatDeployment])
def test_each_deployment_has_an_async_health_check(deployment: type[ModelDeployment[Any]]) -> None:
    # A coroutine times out on a blocked event loop; Serve's default check would still pass.
    assert inspect.iscoroutinefunction(deployment.check_health)
