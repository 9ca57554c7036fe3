"""Failures of the device of an engine: how libraries report them, and how to check the device."""

import logging
import sys

from models.errors import DeviceFailed, EngineError, EngineLost, OutOfMemory
from telemetry import metrics

logger = logging.getLogger(__name__)

# Messages of PyTorch, C++, ONNX Runtime, llama.cpp, cuBLAS and Whisper's processes, in lower case.
NO_MEMORY = ("out of memory", "bad_alloc", "failed to allocate", "alloc_failed", "memoryerror")
DEVICE_ERRORS = ("cuda error", "cuda driver error", "cuda failed with error", "cudnn error")


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, of the device or of the machine."""
    if isinstance(error, MemoryError | OutOfMemory):
        return True
    # ONNX Runtime has classes of its own. Texts of other errors may quote a user.
    is_of_library = (
        isinstance(error, RuntimeError)
        or type(error) in (EngineError, EngineLost)  # of a process of Whisper, for example
        or type(error).__module__.startswith("onnxruntime.")
    )
    return is_of_library and any(sign in str(error).lower() for sign in NO_MEMORY)


def as_engine_error(error: Exception) -> Exception:
    """Return OutOfMemory or DeviceFailed for an error that means this; any other error unchanged.
    The new error refers neither to the old error nor to its frames, which hold tensors."""
    if isinstance(error, EngineError) and type(error) not in (EngineError, EngineLost):
        return error  # an engine chose this class; the text may be a user's
    if is_out_of_memory(error):
        logger.error("out_of_memory", exc_info=error)
        metrics.out_of_memory.inc()
        return OutOfMemory("the model has too little memory for this request")
    text = str(error).lower()
    if isinstance(error, RuntimeError) and any(sign in text for sign in DEVICE_ERRORS):
        logger.error("device_failed", exc_info=error)
        return DeviceFailed("the device of the model has failed")
    return error


def check_gpus() -> None:
    """Raise the error of a GPU on which PyTorch has memory in this process and which has failed.
    Blocking, forever if a GPU hangs. After a failure such as an illegal access, every call raises
    it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    for number in range(torch.cuda.device_count()):
        if torch.cuda.memory_allocated(number):
            # Waiting for the device, or on a request's stream, would wait for requests or break the
            # capture of their CUDA graphs. No request uses a stream of this priority.
            torch.cuda.Stream(number, priority=-1).record_event().synchronize()
