"""What the conversions of published tensors to ONNX graphs share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.errors import WeightsCorrupt

OPSET, IR_VERSION = 17, 8

Array = NDArray[Any]


def tensor_of(tensors: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    """Raises WeightsCorrupt when there is no float32 tensor of that name and shape."""
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
        raise WeightsCorrupt(f"the published file has no {name!r} of shape {shape}")
    return tensor


def value(
    name: str, shape: Sequence[int | str], element: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """An input or output; names in the shape stand for sizes that vary."""
    return helper.make_tensor_value_info(name, element, shape)


def graph_file(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Mapping[str, Array],
) -> bytes:
    """The content of the file of a checked graph."""
    tensors = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
