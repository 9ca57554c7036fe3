"""Makes two fast graphs of Kokoro out of the published one, which is quantized in a slow way.

The published graph quantizes the input of each convolution while it runs. Its last nine tenths, the
vocoder, come out here as plain convolutions with the same weights, which a compiler of graphs can
fuse and run in bfloat16, and in five parts of about the same work, so that a request that was left
stops between them. What comes before, from symbols to the frames of the sentence, stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.utils import Extractor

from models.tts.kokoro_files import PARTS, PLAN_OUTPUTS, SILENT_FRAME

_ROOT = "/decoder/decoder/generator/"
_WEIGHTS = "decoder.decoder.generator."
_PLAN_NAMES = (
    "/encoder/Cast_output_0",
    "/decoder/decoder/decode.3/Div_4_output_0",
    _ROOT + "Concat_3_output_0",
)
_INTERFACE: dict[str, list[int | str]] = {
    "features": [1, 512, "frames"],
    "source": [1, 22, "steps"],
    "style": [1, 128],
    "share": [1],  # of the silence that was cut off, of all
    "low": [1, 256, "low_steps"],
    "low_sum": [1, 256, "low_steps"],
    "raised": [1, 128, "steps"],
    "high": [1, 128, "steps"],
    "high_sum": [1, 128, "steps"],
    "audio": [1, 1, "samples"],
}
_DILATIONS = (1, 3, 5)
_STEPS_A_FRAME = {256: 10, 128: 60}  # by the number of channels
_HOP, _WINDOW, _BINS = 5, 20, 11  # of the inverse short-time Fourier transform
_OPSET = 20

Tensor = NDArray[np.float32]


def split_kokoro(published: Path) -> dict[str, bytes]:
    """ONNX files by name: `plan`, from symbols to frames, and `part0` to `part4`, the vocoder."""
    model = onnx.load(published)
    plan = Extractor(model).extract_model(["tokens", "style", "speed"], list(_PLAN_NAMES))
    names = dict(zip(_PLAN_NAMES, PLAN_OUTPUTS, strict=True))
    for node in plan.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
        node.input[:] = [names.get(name, name) for name in node.input]
    for output in plan.graph.output:
        output.name = names[output.name]
    files = {"plan": plan.SerializeToString()}
    for index, part in enumerate(_vocoder(_Published(model))):
        files[f"part{index}"] = part.SerializeToString()
    return files


class _Published:
    """The weights of the published graph, as float32."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes: dict[str, onnx.NodeProto] = {node.name: node for node in model.graph.node}

    def tensor(self, name: str) -> Tensor:
        return numpy_helper.to_array(self._tensors[name])

    def node(self, name: str) -> onnx.NodeProto:
        return self._nodes[_ROOT + name]

    def convolution(self, name: str) -> tuple[Tensor, Tensor]:
        """Weights [out, in, width] and bias [out]."""
        scale = f"{_WEIGHTS}{name.replace('/', '.')}.bias_scale_node"
        weight = self._dequantized(f"{_ROOT}{name}/Conv_quant", scale)
        return weight, self.tensor(f"{_WEIGHTS}{name.replace('/', '.')}.bias")

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Weights [in, out] and bias [out]."""
        node = f"{_ROOT}{name}/fc/Gemm_MatMul_quant"
        bias = self.tensor(f"{_WEIGHTS}{name.replace('/', '.')}.fc.bias")
        return self._dequantized(node, node + "_scales_mul"), bias

    def _dequantized(self, name: str, scale_name: str) -> Tensor:
        node = self._nodes[name]
        weight = self.tensor(node.input[1]).astype(np.float32)
        zero = self.tensor(node.input[3]).astype(np.float32)
        scales = self._nodes[scale_name].input
        scale = next(self.tensor(each) for each in scales if each in self._tensors)
        if weight.ndim == 3:  # one number for each output channel, or one for all
            zero, scale = (v.reshape(-1, 1, 1) if v.ndim else v for v in (zero, scale))
        return np.asarray((weight - zero) * scale, np.float32)


def _vocoder(published: _Published) -> list[onnx.ModelProto]:
    parts = [_Part(published) for _ in range(PARTS)]
    part = parts[0]
    low = part.op("Add", part.raised("features", 0), part.excited("source", 0))
    part.give("low", low)
    pair = part.block("low", "resblocks.0"), part.block("low", "resblocks.1")
    part.give("low_sum", part.op("Add", *pair))
    part = parts[1]
    third = part.constant(np.float32(1 / 3))
    total = part.op("Add", "low_sum", part.block("low", "resblocks.2"))
    part.give("raised", part.raised(part.op("Mul", total, third), 1))
    part = parts[2]
    part.give("high", part.op("Add", "raised", part.excited("source", 1)))
    part = parts[3]
    pair = part.block("high", "resblocks.3"), part.block("high", "resblocks.4")
    part.give("high_sum", part.op("Add", *pair))
    part = parts[4]
    third = part.constant(np.float32(1 / 3))
    total = part.op("Add", "high_sum", part.block("high", "resblocks.5"))
    part.give("audio", part.sound(part.op("Mul", total, third)))
    return [part.model() for part in parts]


@dataclass
class _Part:
    """A graph while it is built. Names of values are those of `_INTERFACE`, or made up."""

    published: _Published
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def give(self, name: str, value: str) -> None:
        """Makes `value` an output of that name."""
        for node in self.nodes:
            node.input[:] = [name if used == value else used for used in node.input]
            node.output[:] = [name if made == value else made for made in node.output]
        self.outputs.append(name)

    def raised(self, value: str, stage: int) -> str:
        """Ten times as many steps in the first stage, six times and one more in the second."""
        value = self.op("LeakyRelu", value, alpha=0.1)
        node = self.published.node(f"ups.{stage}/ConvTranspose")
        weight, bias = (self.constant(self.published.tensor(name)) for name in node.input[1:])
        value = self.op("ConvTranspose", value, weight, bias, **_shape_of(node))
        if stage == 1:
            value = self.op("Pad", value, self.whole(0, 0, 1, 0, 0, 0), mode="reflect")
        return value

    def excited(self, source: str, stage: int) -> str:
        """What the voice's harmonics add to a stage."""
        node = self.published.node(f"noise_convs.{stage}/Conv_quant")
        weight, bias = self.published.convolution(f"noise_convs.{stage}")
        value = self.op(
            "Conv", source, self.constant(weight), self.constant(bias), **_shape_of(node)
        )
        return self.block(value, f"noise_res.{stage}")

    def block(self, value: str, name: str) -> str:
        """Three residual pairs of convolutions, each behind a norm and a periodic activation."""
        for index, dilation in enumerate(_DILATIONS):
            inner = value
            for half, width in ((1, dilation), (2, 1)):
                inner = self._normed(inner, f"{name}/adain{half}.{index}")
                alpha = self.published.tensor(f"{_WEIGHTS}{name}.alpha{half}.{index}")
                inner = self._snake(inner, alpha)
                weight, bias = self.published.convolution(f"{name}/convs{half}.{index}")
                pad = width * (weight.shape[2] - 1) // 2
                inner = self.op(
                    "Conv",
                    inner,
                    self.constant(weight),
                    self.constant(bias),
                    dilations=[width],
                    pads=[pad, pad],
                )
            value = self.op("Add", inner, value)
        return value

    def _normed(self, value: str, name: str) -> str:
        """Each channel's mean and variance over time set to what the style says.

        Both count what was cut off as so many times the value in the silence that was left.
        """
        weight, bias = self.published.linear(name)
        half = weight.shape[1] // 2  # channels
        at = SILENT_FRAME * _STEPS_A_FRAME[half]
        styled = self.op("Gemm", "style", self.constant(weight), self.constant(bias))
        styled = self.op("Unsqueeze", styled, self.whole(2))
        gain, shift = (
            self.op("Slice", styled, self.whole(start), self.whole(start + half), self.whole(1))
            for start in (0, half)
        )
        time = self.whole(2)
        silence = self.op("Slice", value, self.whole(at), self.whole(at + 1), time)
        mean = self._shared(self.op("ReduceMean", value, time, keepdims=1), silence)
        apart, silent = self.op("Sub", value, mean), self.op("Sub", silence, mean)
        variance = self._shared(
            self.op("ReduceMean", self.op("Mul", apart, apart), time, keepdims=1),
            self.op("Mul", silent, silent),
        )
        spread = self.op("Sqrt", self.op("Add", variance, self.constant(np.float32(1e-5))))
        gain = self.op("Div", self.op("Add", gain, self.constant(np.float32(1))), spread)
        shift = self.op("Sub", shift, self.op("Mul", mean, gain))
        return self.op("Add", self.op("Mul", value, gain), shift)

    def _shared(self, sounding: str, silent: str) -> str:
        change = self.op("Mul", self.op("Sub", silent, sounding), "share")
        return self.op("Add", sounding, change)

    def _snake(self, value: str, alpha: Tensor) -> str:
        """x + sin²(alpha x) / alpha, the sine as a polynomial: compilers fuse sums and products."""
        turns = self.op("Mul", value, self.constant((alpha / np.pi).astype(np.float32)))
        turns = self.op("Sub", turns, self.op("Round", turns))
        square = self.op("Mul", turns, turns)
        *rest, last = (self.constant(np.float32(term)) for term in _SINE_TERMS)
        series = last
        for term in reversed(rest):
            series = self.op("Add", self.op("Mul", series, square), term)
        sine = self.op("Mul", self.op("Mul", series, square), self.constant(1 / alpha))
        return self.op("Add", value, sine)

    def sound(self, value: str) -> str:
        """Magnitudes and phases of short windows, overlapped and added."""
        value = self.op("LeakyRelu", value, alpha=0.01)
        node = self.published.node("conv_post/Conv")
        weight, bias = (self.constant(self.published.tensor(name)) for name in node.input[1:])
        value = self.op("Conv", value, weight, bias, pads=[3, 3])
        magnitude, phase = (
            self.op("Slice", value, self.whole(at), self.whole(at + _BINS), self.whole(1))
            for at in (0, _BINS)
        )
        magnitude, phase = self.op("Exp", magnitude), self.op("Sin", phase)
        parts = [self.op("Mul", magnitude, self.op(wave, phase)) for wave in ("Cos", "Sin")]
        basis = self.published.tensor(f"{_WEIGHTS}stft.istft.stft.inverse_basis")
        return self.op(
            "ConvTranspose",
            self.op("Concat", *parts, axis=1),
            self.constant(basis * np.float32(_WINDOW / _HOP)),
            strides=[_HOP],
            kernel_shape=[_WINDOW],
            pads=[_WINDOW // 2, _WINDOW // 2],
        )

    def model(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        inputs = [name for name in _INTERFACE if name in used and name not in self.outputs]
        graph = helper.make_graph(
            self.nodes, "part", _described(inputs), _described(self.outputs), self.constants
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9
        )


def _described(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, _INTERFACE[name])
        for name in names
    ]


def _shape_of(node: onnx.NodeProto) -> dict[str, Any]:
    kept = {"strides", "pads", "kernel_shape", "dilations"}
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name in kept}


def _sine_terms() -> Tensor:
    """Coefficients of sin²(πr) / r² in powers of r², for |r| up to a half; off by 3e-6 at most."""
    squares = np.linspace(0, 0.25, 20_001)[1:]
    wanted = np.sin(np.pi * np.sqrt(squares)) ** 2 / squares
    fitted = np.polynomial.Chebyshev.fit(squares, wanted, 4)
    terms = fitted.convert(kind=np.polynomial.Polynomial).coef
    return np.asarray(terms, np.float32)


_SINE_TERMS = _sine_terms()
