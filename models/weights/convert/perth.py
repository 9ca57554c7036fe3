"""Builds the ONNX graphs of Perth's encoder and decoder from the published weights.

The networks are those of https://github.com/resemble-ai/Perth (`perth_net`, implicit).
"""

from pathlib import Path

from onnx import ValueInfoProto

from models.watermark.perth import BINS, LAYERS, SPEEDS
from models.weights.convert.onnx_graph import Graph, value
from models.weights.convert.torch_file import Array, read_tensors, tensor_of

UNITS = 256
SLOPE = 0.01


def convert(published: Path) -> dict[str, bytes]:
    """Return the encoder and the decoder.

    The encoder maps `magnitudes` [1, 128, frames] to `change` of the same shape. The decoder maps
    `slow`, `normal` and `fast` [1, 128, frames] to `<speed>_heard` [1, 2, frames]: the weight of
    the branch, and the watermark. Raises WeightsCorrupt.
    """
    tensors = read_tensors(published / "perth_net_250000.pth.tar", "model")
    encoder = Graph()
    change = _stack(encoder, tensors, "encoder.layers", "magnitudes", "change", outputs=BINS)
    decoder = Graph()
    branches = [
        _stack(decoder, tensors, f"decoder.{speed}_layers", speed, f"{speed}_heard", outputs=2)
        for speed in SPEEDS
    ]
    sources, results = zip(*branches, strict=True)
    return {
        "encoder.onnx": encoder.file("watermark encoder", change[:1], change[1:]),
        "decoder.onnx": decoder.file("watermark decoder", sources, results),
    }


def _stack(
    graph: Graph, tensors: dict[str, Array], prefix: str, source: str, result: str, *, outputs: int
) -> tuple[ValueInfoProto, ValueInfoProto]:
    """Add convolutions from the value `source` to the value `result`; return descriptions of
    both."""
    sound = source
    last = len(LAYERS) - 1
    for number, frames in enumerate(LAYERS):
        name = f"{prefix}.{number}.conv"
        units = outputs if number == last else UNITS
        shape = units, UNITS if number else BINS, frames
        sound = graph.add(
            "Conv",
            sound,
            tensor_of(tensors, f"{name}.weight", shape),
            tensor_of(tensors, f"{name}.bias", shape[:1]),
            result=result if number == last else "",
            kernel_shape=[frames],
            pads=[frames // 2, frames // 2],
        )
        if number < last:
            sound = graph.add("LeakyRelu", sound, alpha=SLOPE)
    length = f"{source}_frames"
    return value(source, [1, BINS, length]), value(result, [1, outputs, length])
