"""Builds the ONNX graph of Resemblyzer's encoder from the published weights. The network is that of
"Generalized End-to-End Loss for Speaker Verification" (GE2E, Wan et al., 2018) as
https://github.com/resemble-ai/Resemblyzer has it."""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from models.speaker.base import EMBEDDING_SIZE
from models.speaker.mel import MEL_BANDS
from models.weights.convert.onnx_graph import Graph, value
from models.weights.convert.torch_file import Array, read_tensors

LAYERS = 3
UNITS = 256


def convert(published: Path) -> dict[str, bytes]:
    """Return a graph from `mels` [k, frames, 40] and their valid lengths, `frames` int32 [k], to
    `embeddings` [k, 256] of length 1. Raises WeightsCorrupt."""
    graph = Graph(read_tensors(published / "pretrained.pt", "model_state"))
    sound = graph.add("Transpose", "mels", perm=[1, 0, 2])
    for layer in range(LAYERS):
        size = MEL_BANDS if layer == 0 else UNITS
        weight = _gates(graph, f"lstm.weight_ih_l{layer}", size)[None]
        recurrent = _gates(graph, f"lstm.weight_hh_l{layer}", UNITS)[None]
        biases = [_gates(graph, f"lstm.bias_{side}_l{layer}") for side in ("ih", "hh")]
        bias = np.concatenate(biases)[None]
        states = graph.add("LSTM", sound, weight, recurrent, bias, "frames", hidden_size=UNITS)
        if layer == LAYERS - 1:
            graph.nodes[-1].output.append("last")  # states, of the valid frames
        sound = graph.add("Squeeze", states, np.array([1]))
    weight = graph.tensor("linear.weight", EMBEDDING_SIZE, UNITS).T.copy()
    bias = graph.tensor("linear.bias", EMBEDDING_SIZE)
    linear = graph.add("Gemm", graph.add("Squeeze", "last", np.array([0])), weight, bias)
    positive = graph.add("Relu", linear)
    graph.add("LpNormalization", positive, result="embeddings", axis=1, p=2)
    inputs = [value("mels", ["k", "n", MEL_BANDS]), value("frames", ["k"], TensorProto.INT32)]
    outputs = [value("embeddings", ["k", EMBEDDING_SIZE])]
    return {"encoder.onnx": graph.file("speaker encoder", inputs, outputs)}


def _gates(graph: Graph, name: str, *inputs: int) -> Array:
    """Reorder gates from input, forget, cell, output (torch) to input, output, forget, cell."""
    gate_in, gate_forget, gate_cell, gate_out = np.split(graph.tensor(name, 4 * UNITS, *inputs), 4)
    return np.concatenate([gate_in, gate_out, gate_forget, gate_cell])
