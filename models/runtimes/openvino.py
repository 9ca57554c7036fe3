"""Opens ONNX models with OpenVINO, which fuses and compiles them for the processor."""

import ctypes
import hashlib
import logging
import mmap
import os
import threading
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray

from models.weights.store import delete_outdated, write_whole

logger = logging.getLogger(__name__)

_M_MMAP_THRESHOLD = -3  # option of mallopt(3)
LARGE_BYTES = 1 << 20
LOOK_MS = 20  # how long a check waits for a run to end, while a more urgent run may wait

Values = dict[str, openvino.Tensor]


class OpenVinoModel:
    """Compiled graph, which runs in bfloat16 where the processor supports it. The compiled graph is
    cached beside its file, and then loads in a third of the time."""

    def __init__(self, onnx_file: Path, threads: int) -> None:
        options = {
            "INFERENCE_PRECISION_HINT": "bf16" if "BF16" in _capabilities() else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # engines of other processes share the cores
        }
        self._compiled, file = _compiled(onnx_file, options)
        self._lock = threading.Lock()
        self._begun = self._ended = 0  # how many runs; run n is the nth that begins
        self._failed: tuple[int, RuntimeError] | None = None  # the last failed run and its error
        self._request = self._compiled.create_infer_request()
        self.input_names = tuple(port.any_name for port in self._compiled.inputs)
        self._empty = {
            port.any_name: openvino.Tensor(
                port.element_type,
                [d.get_length() if d.is_static else 0 for d in port.partial_shape],
            )
            for port in (*self._compiled.inputs, *self._compiled.outputs)
        }
        self._file = file  # last, so that it is closed after everything that reads it

    def run(self, values: Mapping[str, openvino.Tensor]) -> Generator[None, None, Values]:
        """Returns outputs by name; yields while it computes. One run at a time computes, others
        wait. Closing the generator does not cancel the run: a graph that is cancelled keeps shapes
        of two inputs, and its next run fails."""
        while (begun := self._begin(values)) is None:
            yield
        number, outputs = begun
        while not self._has_ended(number):
            yield
        return outputs

    def release_memory(self) -> None:
        """Frees the memory of runs, unless one computes. Doing so after each run costs a third of
        the speed: the memory has to be allocated again, page by page."""
        with self._lock:
            if not self._is_free():
                return
            self._compiled.release_memory()
            if self._file is not None:
                self._file.madvise(mmap.MADV_DONTNEED)  # weights are read again when needed

    def _begin(self, values: Mapping[str, openvino.Tensor]) -> tuple[int, Values] | None:
        """Starts a run; returns its number and future outputs, or None while another computes."""
        with self._lock:
            if not self._is_free():
                return None
            outputs = {}
            for name, empty in self._empty.items():
                if name in self.input_names:
                    self._request.set_tensor(name, values[name])
                else:
                    outputs[name] = openvino.Tensor(empty.element_type, empty.shape)
                    self._request.set_tensor(name, outputs[name])
            self._begun += 1
            self._request.start_async()
            return self._begun, outputs

    def _has_ended(self, number: int) -> bool:
        """Whether that run has ended; the next may have begun since. Raises the run's error."""
        with self._lock:
            if self._ended < number and not self._is_free():
                return False
            if self._failed is not None and self._failed[0] == number:
                raise self._failed[1]
            return True

    def _is_free(self) -> bool:
        """Whether no run computes; records the end of the last run."""
        if self._ended < self._begun:
            try:
                if not self._request.wait_for(LOOK_MS):
                    return False
            except RuntimeError as error:
                self._failed = self._begun, error
            self._ended = self._begun
            for name, empty in self._empty.items():  # it would keep those of the last run in memory
                self._request.set_tensor(name, empty)
        return True


def tensor(values: NDArray[Any]) -> openvino.Tensor:
    """Copies an array to an input tensor."""
    return openvino.Tensor(np.ascontiguousarray(values))


def _compiled(
    onnx_file: Path, options: Mapping[str, Any]
) -> tuple[openvino.CompiledModel, mmap.mmap | None]:
    """Compiles or loads the graph; returns it with its mapped file, or None if unwritable."""
    compiler = _digest(openvino.__version__)
    kept = onnx_file.with_name(f"{onnx_file.stem}-{_processor()}-{compiler}.openvino")
    if kept.exists():
        try:
            return _imported(kept, options)
        except RuntimeError as error:
            logger.warning("compiled_graph_unreadable", extra={"reason": str(error)})
    compiled = _core().compile_model(_core().read_model(onnx_file), "CPU", options)
    try:
        write_whole(kept, compiled.export_model().getvalue())
        mine = kept.parent.glob(f"{onnx_file.stem}-{_processor()}-*.openvino")
        delete_outdated(path for path in mine if path != kept)
        return _imported(kept, options)
    except (OSError, RuntimeError) as error:  # such as a full disk, or another user's folder
        logger.warning("compiled_graph_not_cached", extra={"reason": str(error)})
        return compiled, None


def _imported(kept: Path, options: Mapping[str, Any]) -> tuple[openvino.CompiledModel, mmap.mmap]:
    with kept.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    content = openvino.Tensor(np.frombuffer(mapped, np.uint8), shared_memory=True)
    return _core().import_model(content, "CPU", options), mapped


@cache
def _processor() -> str:
    """Digest of the processor and its allowed instructions: unlike machines may share a cache."""
    name = _core().get_property("CPU", "FULL_DEVICE_NAME")
    instructions = filter(None, [os.environ.get("ONEDNN_MAX_CPU_ISA")])
    return _digest((name, sorted(_capabilities()), *instructions))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:8]


@cache
def _core() -> openvino.Core:
    # Makes glibc return large blocks to the system as soon as they are freed. It would keep the
    # blocks that are too small for a longer input, and input lengths vary.
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)
    return openvino.Core()


@cache
def _capabilities() -> frozenset[str]:
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
