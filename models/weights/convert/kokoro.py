"""Fast graphs of Kokoro, made of the published one, which is quantized in a slow way.

The model is https://huggingface.co/hexgrad/Kokoro-82M (StyleTTS 2 with an iSTFTNet decoder), the
published graph that of https://github.com/thewh1teagle/kokoro-onnx.

The published graph quantizes the input of each convolution while it runs. From the frames of the
sentence on it comes out here as plain convolutions with the same weights, which a compiler of
graphs can fuse and run in bfloat16, in parts of about the same work, so that a request that was
left stops between them. What comes before, from symbols to frames, stays as it is.
"""

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.utils import Extractor

from models.tts.kokoro.graphs import PLAN_OUTPUTS
from models.weights.convert.kokoro_vocoder import vocoder

_DECODER = "/decoder/decoder/"
_GENERATOR = _DECODER + "generator/"
_PLAN_NAMES = (
    "/encoder/Cast_output_0",
    _DECODER + "Concat_output_0",
    _GENERATOR + "Concat_3_output_0",
)

Tensor = NDArray[np.float32]


def convert(published: Path) -> dict[str, bytes]:
    """`plan.onnx`, from symbols to frames, and `part0.onnx` and so on, the vocoder."""
    model = onnx.load(published / "kokoro.onnx")
    parts = vocoder(_Published(model))
    plan = Extractor(model).extract_model(["tokens", "style", "speed"], list(_PLAN_NAMES))
    names = dict(zip(_PLAN_NAMES, PLAN_OUTPUTS, strict=True))
    for node in plan.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
        node.input[:] = [names.get(name, name) for name in node.input]
    for output in plan.graph.output:
        output.name = names[output.name]
    files = {f"part{index}.onnx": part.SerializeToString() for index, part in enumerate(parts)}
    return {"plan.onnx": plan.SerializeToString()} | files


class _Published:
    """The weights of the published graph, as float32."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes: dict[str, onnx.NodeProto] = {node.name: node for node in model.graph.node}

    def tensor(self, name: str) -> Tensor:
        return self._tensor(f"decoder.decoder.{name}")

    def convolution(self, name: str) -> tuple[Tensor, Tensor]:
        """Weights [out, in, width] and bias [out]."""
        path = _path(name)
        bias = f"decoder.decoder.{name}.bias"
        if f"{path}/Conv" in self._nodes:
            return self._tensor(self._nodes[f"{path}/Conv"].input[1]), self._tensor(bias)
        if bias in self._tensors:
            weight = self._dequantized(f"{path}/Conv_quant", f"{bias}_scale_node")
            return weight, self._tensor(bias)
        weight = self._dequantized(f"{path}/Conv_quant", f"{path}/Conv_quant_scales_mul")
        return weight, np.zeros(len(weight), np.float32)

    def transposed(self, name: str) -> tuple[Tensor, Tensor]:
        """Weights [in, out, width] and bias [out]."""
        weight, bias = self._nodes[f"{_path(name)}/ConvTranspose"].input[1:]
        return self._tensor(weight), self._tensor(bias)

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Weights [in, out] and bias [out]."""
        node = f"{_path(name)}/Gemm_MatMul_quant"
        bias = self._tensor(f"decoder.decoder.{name}.bias")
        return self._dequantized(node, node + "_scales_mul"), bias

    def _tensor(self, name: str) -> Tensor:
        return numpy_helper.to_array(self._tensors[name])

    def _dequantized(self, name: str, scale_name: str) -> Tensor:
        node = self._nodes[name]
        weight = self._tensor(node.input[1]).astype(np.float32)
        zero = self._tensor(node.input[3]).astype(np.float32)
        scales = self._nodes[scale_name].input
        scale = next(self._tensor(each) for each in scales if each in self._tensors)
        if weight.ndim == 3:  # one number for each output channel, or one for all
            zero, scale = (v.reshape(-1, 1, 1) if v.ndim else v for v in (zero, scale))
        return np.asarray((weight - zero) * scale, np.float32)


def _path(name: str) -> str:
    """Of the nodes that belong to a layer; a number stays with the name before it."""
    name = name.replace("asr_res.0", "asr_res.asr_res.0")
    path = ""
    for word in name.split("."):
        path += word if not path else f".{word}" if word.isdigit() else f"/{word}"
    return _DECODER + path
