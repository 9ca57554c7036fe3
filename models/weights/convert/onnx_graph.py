"""Builds and serialises ONNX graphs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.errors import WeightsCorrupt
from models.weights.convert.torch_file import Array

Values = Sequence[onnx.ValueInfoProto]


def value(
    name: str, shape: Sequence[int | str], element: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """Return an input or output; names in the shape are variable sizes."""
    return helper.make_tensor_value_info(name, element, shape)


class Graph:
    """A graph under construction; `tensors` are the published weights by name."""

    opset = 17
    ir_version = 8

    def __init__(self, tensors: Mapping[str, Array] = {}) -> None:
        self.tensors = tensors
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def tensor(self, name: str, *shape: int) -> Array:
        """Return published weights. Raises WeightsCorrupt unless they are float32 of that shape."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
            raise WeightsCorrupt(f"the published file has no {name!r} of shape {shape}")
        return tensor

    def add(self, kind: str, *inputs: str | Array, result: str = "", **attributes: Any) -> str:
        """Add a node, whose arrays become constants; returns the name of its result."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        result = result or f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [result], **attributes))
        return result

    def constant(self, array: Array) -> str:
        """Add a constant; returns its name."""
        name = f"constant{len(self.constants)}"
        self.constants[name] = array
        return name

    def model(self, name: str, inputs: Values, outputs: Values) -> onnx.ModelProto:
        tensors = [numpy_helper.from_array(array, key) for key, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)

    def file(self, name: str, inputs: Values, outputs: Values) -> bytes:
        """Return the whole graph, checked and serialised."""
        model = self.model(name, inputs, outputs)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())
