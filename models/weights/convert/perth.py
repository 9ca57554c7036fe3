"""Builds the ONNX graphs of Perth's encoder and decoder from the published weights.

The networks are those of https://github.com/resemble-ai/Perth (`perth_net`, implicit).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from models.watermark.perth import BINS, LAYERS, SPEEDS
from models.weights.convert.torch_file import Array, graph_file, read_tensors, tensor_of, value

UNITS = 256
SLOPE = 0.01


def convert(published: Path) -> dict[str, bytes]:
    """The encoder: from `magnitudes` [1, 128, frames] to `change` of the same shape.

    The decoder: from `slow`, `normal` and `fast` [1, 128, frames] to `<speed>_heard`
    [1, 2, frames]: the weight of the branch, and the watermark. Raises WeightsCorrupt.
    """
    tensors = read_tensors(published / "perth_net_250000.pth.tar", "model")
    encoder = _Convolutions(tensors, "encoder.layers", "magnitudes", BINS)
    decoders = [_Convolutions(tensors, f"decoder.{speed}_layers", speed, 2) for speed in SPEEDS]
    return {
        "encoder.onnx": _graph("watermark encoder", [encoder], ["change"]),
        "decoder.onnx": _graph(
            "watermark decoder", decoders, [f"{speed}_heard" for speed in SPEEDS]
        ),
    }


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
            self.weights[weight] = tensor_of(tensors, f"{name}.weight", (units, inputs, frames))
            self.weights[bias] = tensor_of(tensors, f"{name}.bias", (units,))
            sides = [frames // 2, frames // 2]
            self._add("Conv", [self.result, weight, bias], kernel_shape=[frames], pads=sides)
            if number < len(LAYERS) - 1:
                self._add("LeakyRelu", [self.result], alpha=SLOPE)

    def _add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> None:
        self.result = f"{self.source}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [self.result], **attributes))


def _graph(name: str, parts: Sequence[_Convolutions], results: Sequence[str]) -> bytes:
    nodes = [node for part in parts for node in part.nodes]
    inputs, outputs = [], []
    for part, result in zip(parts, results, strict=True):
        nodes.append(helper.make_node("Identity", [part.result], [result]))
        frames = f"{part.source}_frames"
        inputs.append(value(part.source, [1, BINS, frames]))
        outputs.append(value(result, [1, part.outputs, frames]))
    weights = {key: array for part in parts for key, array in part.weights.items()}
    return graph_file(name, nodes, inputs, outputs, weights)
