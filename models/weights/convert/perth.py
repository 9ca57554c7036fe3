"""Makes ONNX graphs of Perth's published weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.errors import WeightsCorrupt
from models.weights.convert.torch_file import read_tensors

OPSET = 17
SECTION = "model"
BINS = 128  # of the spectrum, from 0 Hz, that the mark is in
UNITS = 256
WIDE = 7  # frames that a layer sees
SLOPE = 0.01
LAYERS = (1, WIDE, WIDE, WIDE, WIDE, WIDE, 1)
"""Convolutions of so many frames; between them leaky ReLU."""

SPEEDS = ("slow", "normal", "fast")
"""At which the decoder listens: with 1.25, 1 and 0.75 frames for each."""

Array = NDArray[Any]


def encoder_graph(published: Path) -> bytes:
    """From `magnitudes` [1, 128, frames] to `change` of the same shape. Raises WeightsCorrupt."""
    tensors = read_tensors(published, SECTION)
    part = _Convolutions(tensors, "encoder.layers", "magnitudes", BINS)
    return _model("watermark encoder", [part], ["change"])


def decoder_graph(published: Path) -> bytes:
    """From `slow`, `normal` and `fast` [1, 128, frames] to `<speed>_heard` [1, 2, frames].

    The first row weighs the branch, the second is the mark. Raises WeightsCorrupt.
    """
    tensors = read_tensors(published, SECTION)
    parts = [_Convolutions(tensors, f"decoder.{speed}_layers", speed, 2) for speed in SPEEDS]
    return _model("watermark decoder", parts, [f"{speed}_heard" for speed in SPEEDS])


class _Convolutions:
    """The nodes and weights of one stack."""

    def __init__(self, tensors: dict[str, Array], prefix: str, source: str, outputs: int) -> None:
        self.source, self.outputs = source, outputs
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Array] = {}
        self.result = source
        for number, frames in enumerate(LAYERS):
            inputs = BINS if number == 0 else UNITS
            units = outputs if number == len(LAYERS) - 1 else UNITS
            weight, bias = f"{source}_w{number}", f"{source}_b{number}"
            name = f"{prefix}.{number}.conv"
            self.weights[weight] = _shaped(tensors, f"{name}.weight", (units, inputs, frames))
            self.weights[bias] = _shaped(tensors, f"{name}.bias", (units,))
            sides = [frames // 2, frames // 2]
            self._add("Conv", [self.result, weight, bias], kernel_shape=[frames], pads=sides)
            if number < len(LAYERS) - 1:
                self._add("LeakyRelu", [self.result], alpha=SLOPE)

    def _add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> None:
        self.result = f"{self.source}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [self.result], **attributes))


def _model(name: str, parts: Sequence[_Convolutions], results: Sequence[str]) -> bytes:
    nodes = [node for part in parts for node in part.nodes]
    inputs, outputs = [], []
    for part, result in zip(parts, results, strict=True):
        nodes.append(helper.make_node("Identity", [part.result], [result]))
        frames = f"{part.source}_frames"
        inputs.append(_tensor(part.source, [1, BINS, frames]))
        outputs.append(_tensor(result, [1, part.outputs, frames]))
    weights = {key: array for part in parts for key, array in part.weights.items()}
    graph = helper.make_graph(
        nodes,
        name,
        inputs,
        outputs,
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _tensor(name: str, shape: list[int | str | None]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _shaped(tensors: dict[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
        raise WeightsCorrupt(f"the watermark's file has no {name!r} of shape {shape}")
    return tensor
