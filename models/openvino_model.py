"""Opens ONNX models with OpenVINO, which fuses and compiles them for the processor."""

from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray

LOOK_MS = 20  # how soon a run is stopped that nobody waits for any more

Arrays = dict[str, NDArray[Any]]


class OpenVinoModel:
    """A compiled graph. Runs in bfloat16 where the processor has instructions for it."""

    def __init__(self, onnx_file: Path, threads: int) -> None:
        precision = "bf16" if "BF16" in _capabilities() else "f32"
        self._compiled = _core().compile_model(
            _core().read_model(onnx_file),
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": precision,
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "ENABLE_CPU_PINNING": False,  # engines of other processes share the cores
            },
        )
        self.input_names = tuple(port.any_name for port in self._compiled.inputs)
        self._output_names = tuple(port.any_name for port in self._compiled.outputs)

    def run(self, values: Mapping[str, NDArray[Any]]) -> Generator[None, None, Arrays]:
        """Outputs by name. Yields while it computes; closing the generator stops the work."""
        request = self._compiled.create_infer_request()
        request.start_async({name: values[name] for name in self.input_names}, share_inputs=True)
        finished = False
        try:
            while not request.wait_for(LOOK_MS):
                yield
            finished = True
        finally:
            if not finished:
                request.cancel()
                _settle(request)
        return {name: np.copy(request.get_tensor(name).data) for name in self._output_names}


def _settle(request: openvino.InferRequest) -> None:
    """Waits for the end of a cancelled run: its inputs must live until then."""
    try:
        request.wait()
    except RuntimeError:  # says that it was cancelled
        return


@cache
def _core() -> openvino.Core:
    return openvino.Core()


@cache
def _capabilities() -> frozenset[str]:
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
