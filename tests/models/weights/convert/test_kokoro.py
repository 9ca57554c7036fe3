"""Kokoro's float32 export, in whose place stands a graph of the same form with the weights of the
8-bit one: the release that has it cannot be reached where the tests run."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from configs.settings import weights_dir
from models.errors import WeightsMissing
from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.convert import kokoro
from models.weights.store import WeightStore
from tests.models.tts.loaded import loaded, speech

DECODER, QUANTIZED = "/decoder/decoder/", ("ConvInteger", "MatMulInteger")


@pytest.fixture(scope="module")
def published() -> Path:
    try:
        return WeightStore(weights_dir()).folder("kokoro-82m-int8")
    except WeightsMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def exported(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph with plain operators in the vocoder: the weights of convolutions are computed from
    their norms, and those of linear layers are transposed, as torch exports them."""
    model = onnx.load(published / "kokoro.onnx")
    weights = kokoro._Published(model)
    graph, kept = model.graph, []

    def tensor(name: str, value: object) -> str:
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    for node in list(graph.node):
        path = node.name.removesuffix("_quant")
        name = path.removeprefix(DECODER).replace("asr_res/", "").replace("/", ".")
        if node.op_type not in QUANTIZED or not node.name.startswith(DECODER) or "_conv/" in path:
            kept.append(node)  # two of the decoder belong to the plan, which is not rebuilt
        elif node.op_type == "ConvInteger":
            weight, bias = weights.convolution(name.removesuffix(".Conv"))
            norm = np.sqrt((weight**2).sum(axis=(1, 2), keepdims=True))
            weight = np.where(norm > 0, weight, np.float32(1))  # rounding made some channels zero
            given = [tensor(f"{path}.v", weight), tensor(f"{path}.g", norm)]
            axes = tensor(f"{path}.axes", np.array([1, 2]))
            names = [f"{path}.norm", f"{path}.unit", f"{path}.weight"]
            kept += [
                helper.make_node("ReduceL2", [given[0], axes], names[:1], keepdims=1),
                helper.make_node("Div", [given[0], names[0]], names[1:2]),
                helper.make_node("Mul", [names[1], given[1]], names[2:]),
            ]
            inputs = [node.input[0], names[2], tensor(f"{path}.bias", bias)]
            kept.append(helper.make_node("Conv", inputs, node.output, name=path))
        else:
            weight, bias = weights.linear(name.removesuffix(".Gemm_MatMul"))
            inputs = [node.input[0], tensor(f"{path}.w", weight.T), tensor(f"{path}.b", bias)]
            plain = path.removesuffix("_MatMul")
            kept.append(helper.make_node("Gemm", inputs, node.output, name=plain, transB=1))
    del graph.node[:]
    graph.node.extend(kept)
    folder = tmp_path_factory.mktemp("kokoro")
    onnx.save(model, folder / "kokoro.onnx")
    return folder


@pytest.mark.weights
def test_the_float_export_gives_the_graphs_of_its_weights(published: Path, exported: Path) -> None:
    rounded, plain = (kokoro.convert(folder) for folder in (published, exported))
    assert plain.keys() == rounded.keys()
    for name in plain:
        one, other = (onnx.load_from_string(files[name]).graph for files in (plain, rounded))
        assert list(one.node) == list(other.node), name
        for mine, theirs in zip(one.initializer, other.initializer, strict=True):
            left, right = (numpy_helper.to_array(each).astype(float) for each in (mine, theirs))
            assert np.allclose(left, right, rtol=2**-7), name  # the last bit of bfloat16


@pytest.mark.slow
@pytest.mark.weights
def test_the_float_configuration_speaks_with_the_graphs_of_its_export(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {name: tmp_path / name for name in kokoro.convert(exported)}
    for name, content in kokoro.convert(exported).items():
        paths[name].write_bytes(content)
    engine, _ = loaded("kokoro")
    request = SynthesisRequest("The river runs to the sea.", "af_heart", "en")
    expected = speech(engine, request)
    monkeypatch.setattr(WeightStore, "converted", lambda store, name: dict(paths))
    other, info = load_model(TTS, "tts/kokoro_fp32", WeightStore(weights_dir()))
    made = speech(other, request)
    assert (info.id, len(info.voices)) == ("svc/tts-kokoro-fp32", len(engine.voices()))
    assert len(made) == len(expected)
    assert np.corrcoef(made, expected)[0, 1] > 0.99
