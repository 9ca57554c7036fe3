"""Makes an ONNX graph of the encoder's published weights."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.errors import WeightsCorrupt
from models.speaker.base import EMBEDDING_SIZE
from models.speaker.mel import MEL_BANDS
from models.weights.convert.torch_file import read_tensors

OPSET = 17
LAYERS = 3
UNITS = 256
SECTION = "model_state"

Array = NDArray[Any]


def encoder_graph(published: Path) -> bytes:
    """Three LSTM layers, a linear one, ReLU, and a length of 1.

    From `mels` [k, frames, 40] and `frames` int32 [k], how many of each count, to `embeddings`
    [k, 256]. Raises WeightsCorrupt.
    """
    tensors = read_tensors(published, SECTION)
    nodes, weights = [], {}
    nodes.append(helper.make_node("Transpose", ["mels"], ["layer0"], perm=[1, 0, 2]))
    for layer in range(LAYERS):
        inputs = MEL_BANDS if layer == 0 else UNITS
        weights[f"w{layer}"] = _gates(tensors, f"lstm.weight_ih_l{layer}", (inputs,))[None]
        weights[f"r{layer}"] = _gates(tensors, f"lstm.weight_hh_l{layer}", (UNITS,))[None]
        biases = [_gates(tensors, f"lstm.bias_{side}_l{layer}", ()) for side in ("ih", "hh")]
        weights[f"b{layer}"] = np.concatenate(biases)[None]
        names = [f"layer{layer}", f"w{layer}", f"r{layer}", f"b{layer}", "frames"]
        outputs = [f"states{layer}", f"last{layer}"]
        nodes.append(helper.make_node("LSTM", names, outputs, hidden_size=UNITS))
        nodes.append(helper.make_node("Squeeze", [outputs[0], "one"], [f"layer{layer + 1}"]))
    weights["weight"] = _shaped(tensors, "linear.weight", (EMBEDDING_SIZE, UNITS)).T.copy()
    weights["bias"] = _shaped(tensors, "linear.bias", (EMBEDDING_SIZE,))
    nodes += [
        helper.make_node("Squeeze", [f"last{LAYERS - 1}", "zero"], ["last"]),
        helper.make_node("Gemm", ["last", "weight", "bias"], ["linear"]),
        helper.make_node("Relu", ["linear"], ["positive"]),
        helper.make_node("LpNormalization", ["positive"], ["embeddings"], axis=1, p=2),
    ]
    constants = {"zero": np.array([0], np.int64), "one": np.array([1], np.int64)}
    graph = helper.make_graph(
        nodes,
        "speaker encoder",
        [
            helper.make_tensor_value_info("mels", TensorProto.FLOAT, ["k", "n", MEL_BANDS]),
            helper.make_tensor_value_info("frames", TensorProto.INT32, ["k"]),
        ],
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["k", EMBEDDING_SIZE])],
        [numpy_helper.from_array(array, name) for name, array in (weights | constants).items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _gates(tensors: dict[str, Array], name: str, inputs: tuple[int, ...]) -> Array:
    """Torch has the gates input, forget, cell, output; ONNX has input, output, forget, cell."""
    tensor = _shaped(tensors, name, (4 * UNITS, *inputs))
    gate_in, gate_forget, gate_cell, gate_out = np.split(tensor, 4)
    return np.concatenate([gate_in, gate_out, gate_forget, gate_cell])


def _shaped(tensors: dict[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype != np.float32:
        raise WeightsCorrupt(f"the encoder's file has no {name!r} of shape {shape}")
    return tensor
