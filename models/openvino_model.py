"""Opens ONNX models with OpenVINO, which fuses and compiles them for the processor."""

import threading
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray

LOOK_MS = 20  # how soon a run makes room for a more urgent one, once it is over

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
        self._lock = threading.Lock()
        self._running: tuple[openvino.InferRequest, Arrays] | None = None
        self.input_names = tuple(port.any_name for port in self._compiled.inputs)
        self._output_names = tuple(port.any_name for port in self._compiled.outputs)

    def run(self, values: Mapping[str, NDArray[Any]]) -> Generator[None, None, Arrays]:
        """Outputs by name. Yields while it computes; one run computes at a time, others wait.

        Closing the generator leaves the run to end by itself: a graph that is stopped in the middle
        has the shapes of two inputs in it, and fails with the next one.
        """
        request = self._compiled.create_infer_request()
        inputs = {name: values[name] for name in self.input_names}
        while not self._begin(request, inputs):
            yield
        while not request.wait_for(LOOK_MS):
            yield
        return {name: np.copy(request.get_tensor(name).data) for name in self._output_names}

    def _begin(self, request: openvino.InferRequest, inputs: Arrays) -> bool:
        """False while another run computes."""
        with self._lock:
            if self._running is not None and not _is_over(self._running[0]):
                return False
            self._running = request, inputs  # the inputs must live as long as it computes
            request.start_async(inputs, share_inputs=True)
            return True


def _is_over(request: openvino.InferRequest) -> bool:
    try:
        return bool(request.wait_for(LOOK_MS))
    except RuntimeError:  # it failed; whoever started it is told
        return True


@cache
def _core() -> openvino.Core:
    return openvino.Core()


@cache
def _capabilities() -> frozenset[str]:
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
