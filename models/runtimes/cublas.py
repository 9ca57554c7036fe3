"""cuBLAS 12 for CTranslate2, beside the cuBLAS 13 of torch. CTranslate2 opens the library by its
name at its first call on a GPU. The loader looks for that name among the loaded libraries first,
but not in folders of Python packages. Each version numbers its symbols, so the two do not mix."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

from models.errors import EngineError

LIBRARY = "libcublas.so.12"  # finds libcublasLt.so.12 in its own folder


def load_cublas() -> None:
    """Loads cuBLAS from nvidia-cublas-cu12, else from the system. Raises EngineError."""
    spec = find_spec("nvidia")  # a namespace, in which each package of NVIDIA has its folder
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = [Path(folder, "cublas", "lib", LIBRARY) for folder in folders]
    name = next((str(file) for file in files if file.is_file()), LIBRARY)
    try:
        ctypes.CDLL(name)
    except OSError as error:
        raise EngineError(
            f"CTranslate2 computes on a GPU with cuBLAS 12: install nvidia-cublas-cu12 ({error})"
        ) from None
