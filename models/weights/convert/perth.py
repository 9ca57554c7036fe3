"""Builds the ONNX graphs of Perth's encoder and decoder from the published weights. The networks
are those of https://github.com/resemble-ai/Perth (`perth_net`, implicit)."""

from pathlib import Path

from onnx import ValueInfoProto

from models.watermark.perth import BINS, LAYERS, SPEEDS
from models.weights.convert.onnx_graph import Graph, value
from models.weights.convert.torch_file import read_tensors

UNITS = 256
SLOPE = 0.01


def convert(published: Path) -> dict[str, bytes]:
    """Return the encoder, from `magnitudes` [1, 128, frames] to `change` of the same shape, and the
    decoder, from `slow`, `normal` and `fast` [1, 128, frames] to `<speed>_heard` [1, 2, frames]:
    the weight of the branch, and the watermark. Raises WeightsCorrupt."""
    tensors = read_tensors(published / "perth_net_250000.pth.tar", "model")
    encoder = Graph(tensors)
    change = _stack(encoder, "encoder.layers", "magnitudes", "change", outputs=BINS)
    decoder = Graph(tensors)
    branches = [
        _stack(decoder, f"decoder.{speed}_layers", speed, f"{speed}_heard", outputs=2)
        for speed in SPEEDS
    ]
    sources, results = zip(*branches, strict=True)
    return {
        "encoder.onnx": encoder.file("watermark encoder", change[:1], change[1:]),
        "decoder.onnx": decoder.file("watermark decoder", sources, results),
    }


def _stack(
    graph: Graph, prefix: str, source: str, result: str, *, outputs: int
) -> tuple[ValueInfoProto, ValueInfoProto]:
    """Add convolutions from the value `source` to the value `result`; describe both."""
    sound = source
    last = len(LAYERS) - 1
    for number, frames in enumerate(LAYERS):
        name = f"{prefix}.{number}.conv"
        units = outputs if number == last else UNITS
        inputs = UNITS if number else BINS
        sound = graph.add(
            "Conv",
            sound,
            graph.tensor(f"{name}.weight", units, inputs, frames),
            graph.tensor(f"{name}.bias", units),
            result=result if number == last else "",
            kernel_shape=[frames],
            pads=[frames // 2, frames // 2],
        )
        if number < last:
            sound = graph.add("LeakyRelu", sound, alpha=SLOPE)
    length = f"{source}_frames"
    return value(source, [1, BINS, length]), value(result, [1, outputs, length])
