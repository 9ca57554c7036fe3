"""Builds the ONNX graph of the CAM++ speaker encoder from the published weights. H. Wang et al.,
"CAM++: A Fast and Efficient Network for Speaker Verification Using Context-Aware Masking"
(arXiv:2303.00332): a convolutional head over frequency and time, three blocks of densely connected
layers over time, each masked by its context, then the mean and deviation over time."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from models.errors import WeightsCorrupt
from models.speaker.base import EMBEDDING_SIZE
from models.weights.convert.onnx_graph import Graph, value
from models.weights.convert.torch_file import read_tensors

BANDS, UNITS = 80, 192
CHANNELS = 320  # channels of the head's output, for each frame
BLOCKS = ((12, 1), (24, 2), (16, 2))  # layers, and the dilation of their convolutions


def convert(published: Path) -> dict[str, bytes]:
    """Return a graph from `features` [1, n, 80] and `context` [m, m], m = (n + 1) // 2, to
    `embeddings` [1, 256] of length 1, the last 64 numbers 0. Element [j, i] of `context` is the
    weight of frame j in the context of frame i. Raises WeightsCorrupt."""
    graph = _Graph(read_tensors(published / "campplus_cn_en_common.pt"))
    try:
        _network(graph)
    except KeyError as error:
        raise WeightsCorrupt(f"the published file has no {error}") from error
    inputs = [value("features", [1, "n", BANDS]), value("context", ["m", "m"])]
    outputs = [value("embeddings", [1, EMBEDDING_SIZE])]
    return {"encoder.onnx": graph.file("CAM++", inputs, outputs)}


class _Graph(Graph):
    """A graph of layers with the published weights."""

    def conv(self, of: str, name: str, **attributes: Any) -> str:
        weights = [self.tensors[f"{name}.weight"]]
        if (bias := self.tensors.get(f"{name}.bias")) is not None:
            weights.append(bias)
        return self.add("Conv", of, *weights, **attributes)

    def norm(self, of: str, name: str) -> str:
        """Add a batch normalisation, without a scale if none is published."""
        mean = self.tensors[f"{name}.running_mean"]
        variance = self.tensors[f"{name}.running_var"]
        scale = self.tensors.get(f"{name}.weight", np.ones_like(mean))
        offset = self.tensors.get(f"{name}.bias", np.zeros_like(mean))
        return self.add("BatchNormalization", of, scale, offset, mean, variance)

    def norm_relu(self, of: str, name: str) -> str:
        return self.add("Relu", self.norm(of, name))


def _network(graph: _Graph) -> None:
    sound = graph.add("Reshape", _head(graph), np.array([1, CHANNELS, -1]))
    sound = graph.conv(sound, "xvector.tdnn.linear", strides=[2], pads=[2, 2])
    sound = graph.norm_relu(sound, "xvector.tdnn.nonlinear.batchnorm")
    for number, (layers, dilation) in enumerate(BLOCKS, 1):
        for layer in range(1, layers + 1):
            new = _layer(graph, sound, f"xvector.block{number}.tdnnd{layer}", dilation)
            sound = graph.add("Concat", sound, new, axis=1)
        sound = graph.norm_relu(sound, f"xvector.transit{number}.nonlinear.batchnorm")
        sound = graph.conv(sound, f"xvector.transit{number}.linear")
    sound = graph.norm_relu(sound, "xvector.out_nonlinear.batchnorm")
    mean = graph.add("ReduceMean", sound, axes=[2])
    off = graph.add("Sub", sound, mean)
    squares = graph.add("ReduceSum", graph.add("Mul", off, off), np.array([2]))
    frames = graph.add("Gather", graph.add("Shape", sound), np.array([2]))
    frames = graph.add("Cast", frames, to=TensorProto.FLOAT)
    freedom = graph.add("Sub", frames, np.array([1], np.float32))
    deviation = graph.add("Sqrt", graph.add("Div", squares, freedom))
    pooled = graph.add("Concat", mean, deviation, axis=1)
    units = graph.conv(pooled, "xvector.dense.linear")
    units = graph.add("Squeeze", units, np.array([2]))
    units = graph.norm(units, "xvector.dense.nonlinear.batchnorm")
    units = graph.add("LpNormalization", units, axis=1, p=2)
    padding = np.array([0, 0, 0, EMBEDDING_SIZE - UNITS])
    graph.add("Pad", units, padding, result="embeddings")


def _head(graph: _Graph) -> str:
    """Add the head, [1, 32, 10, n], with an eighth of the bands."""
    same = {"pads": [1, 1, 1, 1]}
    turned = graph.add("Transpose", "features", perm=[0, 2, 1])
    image = graph.conv(graph.add("Unsqueeze", turned, np.array([1])), "head.conv1", **same)
    image = graph.norm_relu(image, "head.bn1")
    for block in ("head.layer1.0", "head.layer1.1", "head.layer2.0", "head.layer2.1"):
        halved = {"strides": [2, 1]} if block.endswith("0") else {}
        new = graph.conv(image, f"{block}.conv1", **same, **halved)
        new = graph.conv(graph.norm_relu(new, f"{block}.bn1"), f"{block}.conv2", **same)
        if halved:
            image = graph.conv(image, f"{block}.shortcut.0", **halved)
            image = graph.norm(image, f"{block}.shortcut.1")
        image = graph.add("Relu", graph.add("Add", graph.norm(new, f"{block}.bn2"), image))
    return graph.norm_relu(graph.conv(image, "head.conv2", **same, strides=[2, 1]), "head.bn2")


def _layer(graph: _Graph, sound: str, name: str, dilation: int) -> str:
    """Add the 32 channels of a layer, [1, 32, m]."""
    narrow = graph.conv(graph.norm_relu(sound, f"{name}.nonlinear1.batchnorm"), f"{name}.linear1")
    narrow = graph.norm_relu(narrow, f"{name}.nonlinear2.batchnorm")
    local = {"pads": [dilation, dilation], "dilations": [dilation]}
    new = graph.conv(narrow, f"{name}.cam_layer.linear_local", **local)
    mask = graph.conv(graph.add("MatMul", narrow, "context"), f"{name}.cam_layer.linear1")
    mask = graph.conv(graph.add("Relu", mask), f"{name}.cam_layer.linear2")
    return graph.add("Mul", new, graph.add("Sigmoid", mask))
