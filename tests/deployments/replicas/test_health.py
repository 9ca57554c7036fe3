"""What Serve asks a replica to find out whether it hangs; no cluster is needed."""

import inspect
from typing import Any

import pytest

from deployments.replicas.chat import ChatDeployment
from deployments.replicas.model import ModelDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment


@pytest.mark.parametrize("deployment", [TTSDeployment, STTDeployment, ChatDeployment])
def test_a_blocked_event_loop_is_noticed(deployment: type[ModelDeployment[Any]]) -> None:
    # Without a method of its own Serve takes a replica for healthy as long as its process answers.
    assert inspect.iscoroutinefunction(deployment.check_health)
