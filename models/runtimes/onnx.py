"""Opens ONNX models on the CPU with settings that suit many engines on one machine."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from models.base import Interruption

CPU = ["CPUExecutionProvider"]


def session_options(threads: int) -> onnxruntime.SessionOptions:
    """Return options for a session; `threads` compute one operator. Idle threads sleep: if they
    spun, one engine would gain a few per cent, and all others lose a core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def open_session(model: Path | bytes, threads: int) -> onnxruntime.InferenceSession:
    source = str(model) if isinstance(model, Path) else model
    return onnxruntime.InferenceSession(source, session_options(threads), providers=CPU)


def run(
    session: onnxruntime.InferenceSession,
    inputs: Mapping[str, NDArray[Any]],
    interruption: Interruption,
) -> list[NDArray[Any]]:
    """Runs a session and returns all outputs. An interruption ends the run after an operator, with
    an error of the library; the session stays usable."""
    options = onnxruntime.RunOptions()
    interruption.add(partial(setattr, options, "terminate", True))
    outputs: list[NDArray[Any]] = session.run(None, inputs, options)
    return outputs
