"""Concurrent runs of one compiled graph: each gets its own result or its own error."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from models.runtimes.openvino import OpenVinoModel, Values, tensor


class Slow:
    """An inference request whose runs end when the test sets `is_over`."""

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
    """A model that doubles numbers."""
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
    """The output of a finished run."""
    with pytest.raises(StopIteration) as done:
        next(run)
    return float(done.value.value["twice"].data[0])


def test_a_finished_run_returns_while_the_next_run_computes(
    model: OpenVinoModel, slow: Slow
) -> None:
    first, second = double(model, 2), double(model, 5)
    next(first)
    next(second)  # waits
    slow.is_over = True
    next(second)  # notices before `first` does that it may start
    assert not slow.is_over
    assert result(first) == 4
    slow.is_over = True
    assert result(second) == 10


def test_the_error_of_a_run_is_raised_only_to_its_caller(model: OpenVinoModel, slow: Slow) -> None:
    first, second = double(model, 2), double(model, 5)
    next(first)
    slow.is_over = slow.fails = True
    next(second)
    slow.fails = False
    with pytest.raises(RuntimeError, match="out of memory"):
        next(first)
    slow.is_over = True
    assert result(second) == 10


def test_a_run_waits_for_a_closed_earlier_run_to_finish(model: OpenVinoModel, slow: Slow) -> None:
    closed, second = double(model, 2), double(model, 5)
    next(closed)
    closed.close()
    next(second)
    assert not slow.is_over
    model.release_memory()
    slow.is_over = True
    next(second)
    slow.is_over = True
    assert result(second) == 10
