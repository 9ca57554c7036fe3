"""Runs of one compiled graph: each has its own end, and a failure is told to who began it."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from models.runtimes.openvino import OpenVinoModel, Values, tensor


class Slow:
    """An inference request whose runs end when the test says so."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.is_over = True
        self.fails = False

    def set_tensor(self, name: str, value: Any) -> None:
        self._request.set_tensor(name, value)

    def start_async(self) -> None:
        self.is_over = False
        self._request.infer()

    def wait_for(self, milliseconds: int) -> bool:
        if self.is_over and self.fails:
            raise RuntimeError("out of memory")
        return self.is_over


@pytest.fixture
def model(tmp_path: Path) -> OpenVinoModel:
    """Doubles numbers."""
    value, twice = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])
        for name in ("value", "twice")
    )
    node = helper.make_node("Add", ["value", "value"], ["twice"])
    graph = helper.make_graph([node], "double", [value], [twice])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "double.onnx")
    return OpenVinoModel(tmp_path / "double.onnx", 1)


@pytest.fixture
def slow(model: OpenVinoModel) -> Slow:
    request = model._request = Slow(model._request)
    return request


def double(model: OpenVinoModel, value: float) -> Generator[None, None, Values]:
    return model.run({"value": tensor(np.array([value], np.float32))})


def result(run: Generator[None, None, Values]) -> float:
    """Of a run that is over."""
    with pytest.raises(StopIteration) as done:
        next(run)
    return float(done.value.value["twice"].data[0])


def test_a_run_that_is_over_does_not_wait_for_the_one_after_it(
    model: OpenVinoModel, slow: Slow
) -> None:
    first, second = double(model, 2), double(model, 5)
    next(first)
    next(second)  # waits
    slow.is_over = True
    next(second)  # sees before the first that it may begin
    assert not slow.is_over
    assert result(first) == 4
    slow.is_over = True
    assert result(second) == 10


def test_a_run_that_failed_tells_who_began_it_and_nobody_else(
    model: OpenVinoModel, slow: Slow
) -> None:
    first, second = double(model, 2), double(model, 5)
    next(first)
    slow.is_over = slow.fails = True
    next(second)
    slow.fails = False
    with pytest.raises(RuntimeError, match="out of memory"):
        next(first)
    slow.is_over = True
    assert result(second) == 10


def test_a_run_that_was_left_keeps_the_next_one_waiting_until_it_is_over(
    model: OpenVinoModel, slow: Slow
) -> None:
    left, second = double(model, 2), double(model, 5)
    next(left)
    left.close()
    next(second)
    assert not slow.is_over
    model.release_memory()
    slow.is_over = True
    next(second)
    slow.is_over = True
    assert result(second) == 10
