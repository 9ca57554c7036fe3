"""Opens ONNX models with OpenVINO, which fuses and compiles them for the processor."""

import ctypes
import threading
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray

_M_MMAP_THRESHOLD = -3  # of mallopt(3)
LARGE_BYTES = 1 << 20
LOOK_MS = 20  # how soon a run makes room for a more urgent one, once it is over

Values = dict[str, openvino.Tensor]


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
        self._is_used = False
        self._request = self._compiled.create_infer_request()
        self.input_names = tuple(port.any_name for port in self._compiled.inputs)
        self._empty = {
            port.any_name: openvino.Tensor(
                port.element_type,
                [d.get_length() if d.is_static else 0 for d in port.partial_shape],
            )
            for port in (*self._compiled.inputs, *self._compiled.outputs)
        }

    def run(self, values: Mapping[str, openvino.Tensor]) -> Generator[None, None, Values]:
        """Outputs by name. Yields while it computes; one run computes at a time, others wait.

        Closing the generator leaves the run to end by itself: a graph that is stopped in the middle
        has the shapes of two inputs in it, and fails with the next one.
        """
        while (outputs := self._begin(values)) is None:
            yield
        while not self._ended():
            yield
        return outputs

    def _ended(self) -> bool:
        with self._lock:
            if not self._request.wait_for(LOOK_MS):
                return False
            for name, empty in self._empty.items():  # or it would keep the last values
                self._request.set_tensor(name, empty)
            return True

    def _begin(self, values: Mapping[str, openvino.Tensor]) -> Values | None:
        """Where the outputs will be, or None while another run computes."""
        with self._lock:
            if self._is_used and not self._is_over():
                return None
            outputs = {}
            for name, empty in self._empty.items():
                if name in self.input_names:
                    self._request.set_tensor(name, values[name])
                else:
                    outputs[name] = openvino.Tensor(empty.element_type, empty.shape)
                    self._request.set_tensor(name, outputs[name])
            self._is_used = True
            self._request.start_async()
            return outputs

    def _is_over(self) -> bool:
        try:
            return bool(self._request.wait_for(LOOK_MS))
        except RuntimeError:  # it failed; whoever started it is told
            return True


def tensor(values: NDArray[Any]) -> openvino.Tensor:
    """A copy, for a graph."""
    return openvino.Tensor(np.ascontiguousarray(values))


@cache
def _core() -> openvino.Core:
    _map_large_memory()
    return openvino.Core()


def _map_large_memory() -> None:
    """Has glibc give large blocks back to the system as soon as they are free.

    It would keep those that a longer input made too small, and graphs meet many lengths.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)


@cache
def _capabilities() -> frozenset[str]:
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
