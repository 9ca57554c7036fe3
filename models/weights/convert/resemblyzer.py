"""Builds the ONNX graph of Resemblyzer's encoder from the published weights.

The network is that of "Generalized End-to-End Loss for Speaker Verification" (GE2E, Wan et al.,
2018) as https://github.com/resemble-ai/Resemblyzer has it.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from models.speaker.base import EMBEDDING_SIZE
from models.speaker.mel import MEL_BANDS
from models.weights.convert.torch_file import Array, graph_file, read_tensors, tensor_of, value

LAYERS = 3
UNITS = 256


def convert(published: Path) -> dict[str, bytes]:
    """Three LSTM layers, a linear one, ReLU, and normalisation to length 1.

    From `mels` [k, frames, 40] and `frames` int32 [k], their valid lengths, to `embeddings`
    [k, 256]. Raises WeightsCorrupt.
    """
    tensors = read_tensors(published / "pretrained.pt", "model_state")
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
    weights["weight"] = tensor_of(tensors, "linear.weight", (EMBEDDING_SIZE, UNITS)).T.copy()
    weights["bias"] = tensor_of(tensors, "linear.bias", (EMBEDDING_SIZE,))
    nodes += [
        helper.make_node("Squeeze", [f"last{LAYERS - 1}", "zero"], ["last"]),
        helper.make_node("Gemm", ["last", "weight", "bias"], ["linear"]),
        helper.make_node("Relu", ["linear"], ["positive"]),
        helper.make_node("LpNormalization", ["positive"], ["embeddings"], axis=1, p=2),
    ]
    content = graph_file(
        "speaker encoder",
        nodes,
        [value("mels", ["k", "n", MEL_BANDS]), value("frames", ["k"], TensorProto.INT32)],
        [value("embeddings", ["k", EMBEDDING_SIZE])],
        weights | {"zero": np.array([0], np.int64), "one": np.array([1], np.int64)},
    )
    return {"encoder.onnx": content}


def _gates(tensors: dict[str, Array], name: str, inputs: tuple[int, ...]) -> Array:
    """Reorders gates: torch has input, forget, cell, output; ONNX input, output, forget, cell."""
    tensor = tensor_of(tensors, name, (4 * UNITS, *inputs))
    gate_in, gate_forget, gate_cell, gate_out = np.split(tensor, 4)
    return np.concatenate([gate_in, gate_out, gate_forget, gate_cell])
