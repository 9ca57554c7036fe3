"""Builds fast graphs of Kokoro from the published one, whose quantization is slow.

The model is https://huggingface.co/hexgrad/Kokoro-82M (StyleTTS 2 with an iSTFTNet decoder), and
the published graph is that of https://github.com/thewh1teagle/kokoro-onnx. Its 8-bit form quantizes
the input of each convolution at run time; its float32 form computes the norms of weights. The
vocoder, from the frames of the sentence on, is rebuilt as plain convolutions with the same weights,
which a graph compiler can fuse and run in bfloat16. Its parts have about the same cost, so that a
cancelled request stops between them. The plan, from symbols to frames, is not changed.

Every value of the vocoder has four dimensions, [1, channels, 1, steps], since compilers would
transpose values of three back and forth. Values between graphs are bfloat16: for an output of
another type, compilers would compute the operators before it in that type."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.utils import Extractor

from models.weights.convert.onnx_graph import Graph

Tensor = NDArray[np.float32]
PLAN_OUTPUTS = ("durations", "features", "source")
"""Frames of 25 ms a symbol [1, n]; float32 [1, 514, frames]; float32 [1, 22, 120 frames + 1]."""
SILENT_FRAME = 2  # index of a silent input frame of the vocoder, between the cut and the speech

_DECODER = "/decoder/decoder/"
_PLAN_NAMES = (
    "/encoder/Cast_output_0",
    _DECODER + "Concat_output_0",
    _DECODER + "generator/Concat_3_output_0",
)

_INTERFACE: dict[str, list[int | str]] = {
    "features": [1, 514, 1, "frames"],
    "source": [1, 22, 1, "steps"],
    "style": [1, 128],
    "share": [1],  # the part of all frames that was cut off
    "decoded": [1, 512, 1, "half_frames"],
    "low": [1, 256, 1, "low_steps"],
    "low_sum": [1, 256, 1, "low_steps"],
    "raised": [1, 128, 1, "steps"],
    "excited": [1, 128, 1, "steps"],
    "high": [1, 128, 1, "steps"],
    "high_sum": [1, 128, 1, "steps"],
    "high_sums": [1, 128, 1, "steps"],
    "last": [1, 128, 1, "steps"],
    "audio": [1, 1, 1, "samples"],
}
_ENDS = {"features", "source", "style", "share", "audio"}  # inputs and outputs in float32
_DILATIONS = (1, 3, 5)
_HALF_FRAME, _LOW, _HIGH = 2, 20, 120  # steps per frame
_HOP, _WINDOW, _BINS = 5, 20, 11  # sizes of the inverse short-time Fourier transform
_HALF = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)


def convert(published: Path) -> dict[str, bytes]:
    """Return `plan.onnx`, from symbols to frames, and `part0.onnx` and so on, the vocoder."""
    model = onnx.load(published / "kokoro.onnx")
    vocoder = _vocoder(_Published(model))
    plan = Extractor(model).extract_model(["tokens", "style", "speed"], list(_PLAN_NAMES))
    names = dict(zip(_PLAN_NAMES, PLAN_OUTPUTS, strict=True))
    for node in plan.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
        node.input[:] = [names.get(name, name) for name in node.input]
    for output in plan.graph.output:
        output.name = names[output.name]
    files = {f"part{index}.onnx": part.SerializeToString() for index, part in enumerate(vocoder)}
    return {"plan.onnx": plan.SerializeToString()} | files


class _Published:
    """The weights of the published graph in float32; their names lack `decoder.decoder.`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes: dict[str, onnx.NodeProto] = {node.name: node for node in model.graph.node}
        self._makers = {name: node for node in model.graph.node for name in node.output}

    def tensor(self, name: str) -> Tensor:
        return self._tensor(f"decoder.decoder.{name}")

    def convolution(self, name: str) -> tuple[Tensor, Tensor]:
        """Return weights [out, in, width] and bias [out]."""
        path, bias = _path(name), f"decoder.decoder.{name}.bias"
        has_bias = bias in self._tensors
        if f"{path}/Conv" in self._nodes:
            weight = self._constant(self._nodes[f"{path}/Conv"].input[1])
        else:
            scale = f"{bias}_scale_node" if has_bias else f"{path}/Conv_quant_scales_mul"
            weight = self._dequantized(f"{path}/Conv_quant", scale)
        return weight, self._tensor(bias) if has_bias else np.zeros(len(weight), np.float32)

    def transposed(self, name: str) -> tuple[Tensor, Tensor]:
        """Return weights [in, out, width] and bias [out]."""
        weight, bias = self._nodes[f"{_path(name)}/ConvTranspose"].input[1:]
        return self._constant(weight), self._constant(bias)

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Return weights [in, out] and bias [out]."""
        node = f"{_path(name)}/Gemm"
        if node in self._nodes:
            weight, bias = map(self._constant, self._nodes[node].input[1:])  # [out, in], of torch
            return weight.T, bias
        node += "_MatMul_quant"
        bias = self._tensor(f"decoder.decoder.{name}.bias")
        return self._dequantized(node, node + "_scales_mul"), bias

    def _tensor(self, name: str) -> Tensor:
        return numpy_helper.to_array(self._tensors[name])

    def _constant(self, name: str) -> Tensor:
        """Return a tensor of the graph, or the result of nodes that compute it from tensors."""
        if name in self._tensors:
            return self._tensor(name)
        node = self._makers[name]
        inputs = {source: self._constant(source) for source in node.input}
        return np.asarray(next(iter(ReferenceEvaluator(node).run(None, inputs))))

    def _dequantized(self, name: str, scale_name: str) -> Tensor:
        node = self._nodes[name]
        weight = self._tensor(node.input[1]).astype(np.float32)
        zero = self._tensor(node.input[3]).astype(np.float32)
        scales = self._nodes[scale_name].input
        scale = next(self._tensor(each) for each in scales if each in self._tensors)
        if weight.ndim == 3:  # one number for each output channel, or one for all
            zero, scale = (v.reshape(-1, 1, 1) if v.ndim else v for v in (zero, scale))
        return np.asarray((weight - zero) * scale, np.float32)


def _vocoder(published: _Published) -> Iterator[onnx.ModelProto]:
    """Yield the graphs in their order: each has outputs that later graphs take as inputs."""
    for step in _STEPS:
        part = _VocoderPart(published)
        step(part)
        yield part.model("part", _described(part.inputs), _described(part.outputs))


def _decode(part: "_VocoderPart") -> None:
    text = part.cut(part.take("features"), 1, 0, 512)
    melody = part.cut(part.take("features"), 1, 512, 514)
    value = part.decoded(part.take("features"), "encode")
    text = part.convolved(text, "asr_res.0")
    for index in range(4):
        joined = part.add("Concat", value, text, melody, axis=1)
        value = part.decoded(joined, f"decode.{index}", is_last=index == 3)
    part.give("decoded", value)


def _low(part: "_VocoderPart") -> None:
    excited = part.convolved(part.take("source"), "generator.noise_convs.0", stride=6, pad=3)
    excited = part.block(excited, "generator.noise_res.0", _LOW)
    raised = part.raised(part.take("decoded"), "generator.ups.0", 10)
    part.give("low", part.add("Add", raised, excited))


def _low_sum(part: "_VocoderPart") -> None:
    pair = (part.block(part.take("low"), f"generator.resblocks.{index}", _LOW) for index in (0, 1))
    part.give("low_sum", part.add("Add", *pair))


def _raised(part: "_VocoderPart") -> None:
    block = part.block(part.take("low"), "generator.resblocks.2", _LOW)
    total = part.add("Add", part.take("low_sum"), block)
    raised = part.raised(part.third(total), "generator.ups.1", 6)
    second = part.cut(raised, 3, 1, 2)  # the source has one step more
    part.give("raised", part.add("Concat", second, raised, axis=3))


def _excited(part: "_VocoderPart") -> None:
    value = part.convolved(part.take("source"), "generator.noise_convs.1")
    part.give("excited", part.block(value, "generator.noise_res.1", _HIGH, (0, 1)))


def _high(part: "_VocoderPart") -> None:
    excited = part.block(part.take("excited"), "generator.noise_res.1", _HIGH, (2,))
    high = part.add("Add", part.take("raised"), excited)
    part.give("high_sum", part.block(high, "generator.resblocks.3", _HIGH))
    part.give("high", high)


def _high_sums(part: "_VocoderPart") -> None:
    block = part.block(part.take("high"), "generator.resblocks.4", _HIGH)
    part.give("high_sums", part.add("Add", part.take("high_sum"), block))


def _last(part: "_VocoderPart") -> None:
    part.give("last", part.block(part.take("high"), "generator.resblocks.5", _HIGH, (0, 1)))


def _audio(part: "_VocoderPart") -> None:
    block = part.block(part.take("last"), "generator.resblocks.5", _HIGH, (2,))
    part.give("audio", part.sound(part.third(part.add("Add", part.take("high_sums"), block))))


_STEPS = (_decode, _low, _low_sum, _raised, _excited, _high, _high_sums, _last, _audio)


class _VocoderPart(Graph):
    """A part of the vocoder. Names of values are those of `_INTERFACE`, or generated."""

    opset, ir_version = 20, 9

    def __init__(self, published: _Published) -> None:
        super().__init__()
        self.published = published
        self.inputs: dict[str, str] = {}
        self.outputs: list[str] = []

    def number(self, value: float) -> str:
        return self.constant(np.array([value], np.float32))

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def channels(self, values: NDArray[Any]) -> str:
        """Add a constant with one number for each channel."""
        return self.constant(values.reshape(1, -1, 1, 1).astype(np.float32))

    def cut(self, value: str, axis: int, start: int, end: int) -> str:
        return self.add("Slice", value, self.whole(start), self.whole(end), self.whole(axis))

    def third(self, value: str) -> str:
        return self.add("Mul", value, self.number(1 / 3))

    def take(self, name: str) -> str:
        if name not in self.inputs:
            self.inputs[name] = self.add("Cast", name, to=onnx.TensorProto.FLOAT)
        return self.inputs[name]

    def give(self, name: str, value: str) -> None:
        self.outputs.append(self.add("Cast", value, result=name, to=_type(name)))

    def convolved(
        self, value: str, name: str, *, stride: int = 1, dilation: int = 1, pad: int | None = None
    ) -> str:
        """Add a convolution, which keeps the number of steps unless `stride` or `pad` change it."""
        weight, bias = self.published.convolution(name)
        pad = dilation * (weight.shape[2] - 1) // 2 if pad is None else pad
        return self.half(
            "Conv",
            value,
            weight[:, :, None],
            bias,
            strides=[1, stride],
            dilations=[1, dilation],
            pads=[0, pad, 0, pad],
        )

    def half(self, kind: str, value: str, weight: Tensor, bias: Tensor, **attributes: Any) -> str:
        """Add an operator in bfloat16, as it would run anyway, for half the memory of weights."""
        value = self.add("Cast", value, to=onnx.TensorProto.BFLOAT16)
        value = self.add(kind, value, weight.astype(_HALF), bias.astype(_HALF), **attributes)
        return self.add("Cast", value, to=onnx.TensorProto.FLOAT)

    def raised(self, value: str, name: str, times: int) -> str:
        """Upsample by `times`, by a convolution whose channels are new steps: transposed ones are
        slow."""
        weight, bias = self.published.transposed(name)  # [in, out, width]
        width, pad = weight.shape[2], (weight.shape[2] - times) // 2
        before, after = (width - 1 - pad) // times, (times - 1 + pad) // times
        inputs, outputs, _ = weight.shape
        taps = np.zeros((times, outputs, inputs, before + after + 1), np.float32)
        for step in range(times):
            for distance in range(-after, before + 1):
                if 0 <= (tap := distance * times + step + pad) < width:
                    taps[step, :, :, before - distance] = weight[:, :, tap].T
        value = self.add("LeakyRelu", value, alpha=0.1)
        value = self.half(
            "Conv",
            value,
            taps.reshape(-1, inputs, 1, taps.shape[3]),
            np.tile(bias, times),
            strides=[1, 1],
            dilations=[1, 1],
            pads=[0, before, 0, after],
        )
        value = self.add("Transpose", value, perm=[0, 2, 3, 1])
        value = self.add("Reshape", value, self.whole(1, 1, -1, outputs))
        return self.add("Transpose", value, perm=[0, 3, 1, 2])

    def decoded(self, value: str, name: str, *, is_last: bool = False) -> str:
        """Add a residual pair of convolutions; the last block doubles the number of steps."""
        inner = self._styled(value, f"{name}.norm1", 1)
        inner = self.add("LeakyRelu", inner, alpha=0.2)
        if is_last:
            inner = self._doubled(inner, f"{name}.pool")
            value = self._interleaved(value, value)
        inner = self.convolved(inner, f"{name}.conv1")
        inner = self._styled(inner, f"{name}.norm2", _HALF_FRAME if is_last else 1)
        inner = self.convolved(self.add("LeakyRelu", inner, alpha=0.2), f"{name}.conv2")
        total = self.add("Add", inner, self.convolved(value, f"{name}.conv1x1"))
        return self.add("Mul", total, self.number(1 / np.sqrt(2)))

    def _doubled(self, value: str, name: str) -> str:
        """Add a depthwise transposed convolution of width 3."""
        weight, bias = self.published.transposed(name)  # [channels, 1, 3]
        first, middle, last = (self.channels(weight[:, 0, tap]) for tap in range(3))
        later = self.add("Slice", value, self.whole(1), self.whole(2**31), self.whole(3))
        later = self.add("Pad", later, self.whole(0, 0, 0, 0, 0, 0, 0, 1))
        even = self.add("Mul", value, middle)
        odd = self.add("Add", self.add("Mul", value, last), self.add("Mul", later, first))
        return self.add("Add", self._interleaved(even, odd), self.channels(bias))

    def _interleaved(self, even: str, odd: str) -> str:
        pair = self.add("Concat", even, odd, axis=2)  # [1, channels, 2, steps]
        pair = self.add("Transpose", pair, perm=[0, 1, 3, 2])
        return self.add("Reshape", pair, self.whole(1, 0, 1, -1))

    def block(
        self, value: str, name: str, steps: int, units: Sequence[int] = range(len(_DILATIONS))
    ) -> str:
        """Add residual pairs of convolutions, each after a norm and a periodic activation."""
        for index in units:
            inner = value
            for half, dilation in ((1, _DILATIONS[index]), (2, 1)):
                alpha = self.published.tensor(f"{name}.alpha{half}.{index}").reshape(-1)
                norm = self._norm(inner, f"{name}.adain{half}.{index}", steps)
                inner = self._snake(inner, *norm, alpha)
                inner = self.convolved(inner, f"{name}.convs{half}.{index}", dilation=dilation)
            value = self.add("Add", inner, value)
        return value

    def _styled(self, value: str, name: str, steps: int) -> str:
        gain, shift = self._norm(value, name, steps)
        return self.add("Add", self.add("Mul", value, gain), shift)

    def _norm(self, value: str, name: str, steps: int) -> tuple[str, str]:
        """Return the gain and shift that set each channel's mean and variance to those of the
        style. Both include the frames that were cut off, with the value of SILENT_FRAME."""
        weight, bias = self.published.linear(f"{name}.fc")
        half = weight.shape[1] // 2  # channels
        at = SILENT_FRAME * steps
        styled = self.half("Gemm", self.take("style"), weight, bias)
        styled = self.add("Unsqueeze", styled, self.whole(2, 3))
        gain, shift = (self.cut(styled, 1, start, start + half) for start in (0, half))
        time = self.whole(3)
        silence = self.cut(value, 3, at, at + 1)
        mean = self._with_cut_frames(self.add("ReduceMean", value, time, keepdims=1), silence)
        apart, silent = self.add("Sub", value, mean), self.add("Sub", silence, mean)
        variance = self._with_cut_frames(
            self.add("ReduceMean", self.add("Mul", apart, apart), time, keepdims=1),
            self.add("Mul", silent, silent),
        )
        spread = self.add("Sqrt", self.add("Add", variance, self.number(1e-5)))
        gain = self.add("Div", self.add("Add", gain, self.number(1)), spread)
        return gain, self.add("Sub", shift, self.add("Mul", mean, gain))

    def _with_cut_frames(self, sounding: str, silent: str) -> str:
        change = self.add("Mul", self.add("Sub", silent, sounding), self.take("share"))
        return self.add("Add", sounding, change)

    def _snake(self, value: str, gain: str, shift: str, alpha: Tensor) -> str:
        """Add y + sin²(alpha y) / alpha of y = gain value + shift. It is a chain in which each
        operator uses only the previous result: compilers fuse it into one pass."""
        turns = self.channels(alpha / np.pi)
        inner = self.add("Mul", value, self.add("Mul", gain, turns))
        inner = self.add("Add", inner, self.add("Mul", shift, turns))
        inner = self.add("Abs", self.add("Mod", inner, self.number(1), fmod=1))
        inner = self._square(inner, 1, -0.5)
        scale, offset, rest = _COSINE
        inner = self._square(inner, scale, offset)
        inner = self._square(inner, 1, rest)  # square of the cosine of half the angle
        inner = self._square(inner, 2, -1)
        inner = self.add("Mul", inner, self.channels(1 / alpha))
        inner = self.add("Add", inner, shift)
        return self.add("Add", self.add("Mul", value, gain), inner)

    def _square(self, value: str, scale: float, offset: float) -> str:
        if scale != 1:
            value = self.add("Mul", value, self.number(scale))
        value = self.add("Add", value, self.number(offset))
        return self.add("Pow", value, self.number(2))

    def sound(self, value: str) -> str:
        """Add the sound: magnitudes and phases of short windows, overlapped and added."""
        value = self.add("LeakyRelu", value, alpha=0.01)
        value = self.convolved(value, "generator.conv_post")
        magnitude, phase = (self.cut(value, 1, at, at + _BINS) for at in (0, _BINS))
        magnitude, phase = self.add("Exp", magnitude), self.add("Sin", phase)
        parts = [self.add("Mul", magnitude, self.add(wave, phase)) for wave in ("Cos", "Sin")]
        basis = self.published.tensor("generator.stft.istft.stft.inverse_basis")
        return self.add(
            "ConvTranspose",
            self.add("Concat", *parts, axis=1),
            self.constant(basis[:, :, None] * np.float32(_WINDOW / _HOP)),
            strides=[1, _HOP],
            kernel_shape=[1, _WINDOW],
            pads=[0, _WINDOW // 2, 0, _WINDOW // 2],
        )


def _path(name: str) -> str:
    """Return the node path of a layer; an index is joined to the name before it."""
    name = name.replace("asr_res.0", "asr_res.asr_res.0")
    path = ""
    for word in name.split("."):
        path += word if not path else f".{word}" if word.isdigit() else f"/{word}"
    return _DECODER + path


def _described(names: Iterable[str]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, _type(name), _INTERFACE[name]) for name in names]


def _type(name: str) -> int:
    return onnx.TensorProto.FLOAT if name in _ENDS else onnx.TensorProto.BFLOAT16


def _cosine() -> tuple[float, float, float]:
    """Return `a, b, c` of (a r² + b)² + c ≈ cos(πr / 2), with an error of 1e-5 for |r| ≤ ½."""
    squares = np.linspace(0, 0.25, 2001)
    fitted = np.polynomial.Chebyshev.fit(squares, np.cos(np.pi / 2 * np.sqrt(squares)), 2)
    c, b, a = (float(term) for term in fitted.convert(kind=np.polynomial.Polynomial).coef)
    return math.sqrt(a), b / (2 * math.sqrt(a)), c - b * b / (4 * a)


_COSINE = _cosine()
