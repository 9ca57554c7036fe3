"""Builds the ONNX graph of a MiniLM sentence encoder from the published weights. Reimers and
Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks" (2019): BERT, the mean of
its last states over the tokens of a text, scaled to length 1."""

import json
from math import prod, sqrt
from pathlib import Path

import numpy as np
from onnx import TensorProto

from models.errors import WeightsCorrupt
from models.weights.convert.onnx_graph import Graph, value
from models.weights.convert.torch_file import Array

UNITS, HEADS, INNER_UNITS, LAYERS = 384, 12, 1536, 6
WORDS, POSITIONS = 30_522, 512
MASKED = -1e4  # added to the attention score of padding


def convert(published: Path) -> dict[str, bytes]:
    """Return a graph from `tokens` int64 [k, n] and `mask` float32 [k, n], which is 0 for padding,
    to `embeddings` [k, 384] of length 1. Raises WeightsCorrupt."""
    graph = _SentenceGraph(_read_tensors(published / "model.safetensors"))
    places = graph.tensor("embeddings.position_embeddings.weight", POSITIONS, UNITS)
    places = places + graph.tensor("embeddings.token_type_embeddings.weight", 2, UNITS)[0]
    words = graph.tensor("embeddings.word_embeddings.weight", WORDS, UNITS)
    length = graph.add("Shape", "tokens", start=1)
    place = graph.add("Slice", places, np.array([0]), length, np.array([0]))
    states = graph.add("Add", graph.add("Gather", words, "tokens"), place)
    states = graph.norm(states, "embeddings.LayerNorm")
    columns = graph.add("Unsqueeze", "mask", np.array([1, 2]))
    hidden = graph.add("Sub", np.ones(1, np.float32), columns)
    penalty = graph.add("Mul", hidden, np.array([MASKED], np.float32))
    for layer in range(LAYERS):
        states = graph.layer(states, penalty, f"encoder.layer.{layer}")
    rows = graph.add("Unsqueeze", "mask", np.array([2]))
    total = graph.add("ReduceSum", graph.add("Mul", states, rows), np.array([1]), keepdims=0)
    graph.add("LpNormalization", total, result="embeddings", axis=1, p=2)
    inputs = [value("tokens", ["k", "n"], TensorProto.INT64), value("mask", ["k", "n"])]
    outputs = [value("embeddings", ["k", UNITS])]
    return {"encoder.onnx": graph.file("sentence encoder", inputs, outputs)}


class _SentenceGraph(Graph):
    """A graph of layers with the published weights."""

    def linear(self, of: str, name: str, inputs: int, outputs: int) -> str:
        weight = self.tensor(f"{name}.weight", outputs, inputs).T.copy()
        product = self.add("MatMul", of, weight)
        return self.add("Add", product, self.tensor(f"{name}.bias", outputs))

    def norm(self, of: str, name: str) -> str:
        scale = self.tensor(f"{name}.weight", UNITS)
        offset = self.tensor(f"{name}.bias", UNITS)
        return self.add("LayerNormalization", of, scale, offset, epsilon=1e-12)

    def layer(self, states: str, penalty: str, name: str) -> str:
        """Add a layer from [k, n, 384] to [k, n, 384]."""
        attended = self._attention(states, penalty, f"{name}.attention.self")
        attended = self.linear(attended, f"{name}.attention.output.dense", UNITS, UNITS)
        sums = self.add("Add", attended, states)
        states = self.norm(sums, f"{name}.attention.output.LayerNorm")
        inner = self.linear(states, f"{name}.intermediate.dense", UNITS, INNER_UNITS)
        erf = self.add("Erf", self.add("Div", inner, np.array(sqrt(2), np.float32)))
        gate = self.add("Add", erf, np.array(1, np.float32))
        gelu = self.add("Mul", self.add("Mul", inner, gate), np.array(0.5, np.float32))
        outer = self.linear(gelu, f"{name}.output.dense", INNER_UNITS, UNITS)
        return self.norm(self.add("Add", outer, states), f"{name}.output.LayerNorm")

    def _attention(self, states: str, penalty: str, name: str) -> str:
        query, key, content = (
            self.add(
                "Transpose",
                self.add(
                    "Reshape",
                    self.linear(states, f"{name}.{part}", UNITS, UNITS),
                    np.array([0, 0, HEADS, UNITS // HEADS]),
                ),
                perm=[0, 2, 3, 1] if part == "key" else [0, 2, 1, 3],
            )
            for part in ("query", "key", "value")
        )
        product = self.add("MatMul", query, key)
        scores = self.add("Div", product, np.array(sqrt(UNITS // HEADS), np.float32))
        weights = self.add("Softmax", self.add("Add", scores, penalty), axis=-1)
        heads = self.add("Transpose", self.add("MatMul", weights, content), perm=[0, 2, 1, 3])
        return self.add("Reshape", heads, np.array([0, 0, UNITS]))


def _read_tensors(path: Path) -> dict[str, Array]:
    """Read the float32 tensors of a safetensors file. Raises WeightsCorrupt. The format:
    https://github.com/huggingface/safetensors#format."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        tensors = {}
        for name, entry in json.loads(data[8:start]).items():
            if entry.get("dtype") == "F32":
                count, offset = prod(entry["shape"]), start + entry["data_offsets"][0]
                tensors[name] = np.frombuffer(data, "<f4", count, offset).reshape(entry["shape"])
        return tensors
    except (ValueError, LookupError, AttributeError) as error:
        raise WeightsCorrupt(f"{path.name} cannot be read: {error}") from error
