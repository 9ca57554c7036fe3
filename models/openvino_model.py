"""Opens ONNX models with OpenVINO, which fuses and compiles them for the processor."""

import threading
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
                # What it keeps for each length of speech: it grows, and gains nothing measurable.
                "CPU_RUNTIME_CACHE_CAPACITY": 0,
                "ENABLE_CPU_PINNING": False,  # engines of other processes share the cores
            },
        )
        self._lock = threading.Lock()
        self._running: openvino.InferRequest | None = None
        self._first_values: Arrays | None = None
        self.input_names = tuple(port.any_name for port in self._compiled.inputs)
        self._output_names = tuple(port.any_name for port in self._compiled.outputs)

    def run(self, values: Mapping[str, NDArray[Any]]) -> Generator[None, None, Arrays]:
        """Outputs by name. Yields while it computes; closing the generator stops the work.

        One run computes at a time; another waits. The first run of all should be a short one: it
        is done again after each run that was stopped.
        """
        inputs = {name: values[name] for name in self.input_names}
        request = self._compiled.create_infer_request()
        while not self._begin(request, inputs):
            yield
        finished = False
        try:
            while not request.wait_for(LOOK_MS):
                yield
            finished = True
        finally:
            self._end(request, finished)
        return {name: np.copy(request.get_tensor(name).data) for name in self._output_names}

    def _begin(self, request: openvino.InferRequest, inputs: Arrays) -> bool:
        """False while another run computes."""
        with self._lock:
            if self._running is not None and not self._running.wait_for(LOOK_MS):
                return False
            if self._first_values is None:
                self._first_values = {name: np.copy(value) for name, value in inputs.items()}
            self._running = request
            request.start_async(inputs, share_inputs=True)
            return True

    def _end(self, request: openvino.InferRequest, finished: bool) -> None:
        with self._lock:
            if not finished and not request.wait_for(0):
                request.cancel()
                _settle(request)
                # A run that was stopped leaves the shapes of its inputs in one half of the graph
                # and older ones in the other; a whole run makes them agree again.
                self._compiled.create_infer_request().infer(self._first_values)
            if self._running is request:
                self._running = None


def finish(run: Generator[None, None, Arrays]) -> Arrays:
    """What a run gives, waited for."""
    while True:
        try:
            next(run)
        except StopIteration as done:
            outputs: Arrays = done.value
            return outputs


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
