"""Builds the ONNX graphs of Perth's encoder and decoder from the published weights.

The networks are those of https://github.com/resemble-ai/Perth (`perth_net`, implicit).
"""

from pathlib import Path

from onnx import ValueInfoProto

from models.watermark.perth import BINS, LAYERS, SPEEDS
from models.weights.convert.torch_file import Array, Graph, read_tensors, tensor_of, value

UNITS = 256
SLOPE = 0.01


def convert(published: Path) -> dict[str, bytes]:
    """The encoder: from `magnitudes` [1, 128, frames] to `change` of the same shape.

    The decoder: from `slow`, `normal` and `fast` [1, 128, frames] to `<speed>_heard`
    [1, 2, frames]: the weight of the branch, and the watermark. Raises WeightsCorrupt.
    """
    tensors = read_tensors(published / "perth_net_250000.pth.tar", "model")
    encoder, decoder = Graph(), Graph()
    change = _stack(encoder, tensors, "encoder.layers", ("magnitudes", "change"), BINS)
    heard = [
        _stack(decoder, tensors, f"decoder.{speed}_layers", (speed, f"{speed}_heard"), 2)
        for speed in SPEEDS
    ]
    sources, results = zip(*heard, strict=True)
    return {
        "encoder.onnx": encoder.file("watermark encoder", change[:1], change[1:]),
        "decoder.onnx": decoder.file("watermark decoder", sources, results),
    }


def _stack(
    graph: Graph, tensors: dict[str, Array], prefix: str, ends: tuple[str, str], outputs: int
) -> tuple[ValueInfoProto, ValueInfoProto]:
    """Adds convolutions between two values of these names; describes both."""
    source, result = ends
    sound, last = source, len(LAYERS) - 1
    for number, frames in enumerate(LAYERS):
        shape = outputs if number == last else UNITS, UNITS if number else BINS, frames
        name, sides = f"{prefix}.{number}.conv", [frames // 2, frames // 2]
        weight = tensor_of(tensors, f"{name}.weight", shape)
        bias = tensor_of(tensors, f"{name}.bias", shape[:1])
        made = result if number == last else ""
        window = {"kernel_shape": [frames], "pads": sides}
        sound = graph.add("Conv", sound, weight, bias, result=made, **window)
        if number < last:
            sound = graph.add("LeakyRelu", sound, alpha=SLOPE)
    length = f"{source}_frames"
    return value(source, [1, BINS, length]), value(result, [1, outputs, length])
