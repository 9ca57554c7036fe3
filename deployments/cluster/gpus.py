"""The NVIDIA GPUs of this machine by `nvidia-smi`, whether CUDA works on them, and what fits them.

Without PyTorch: its import takes seconds, and CUDA that began in a process does not survive a fork.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryFile
from typing import Any, Literal

from models.registry import artefacts_of, files_of
from models.weights.store import WeightStore

GB = 10**9
MIB = 2**20
ANSWER_S = 20.0  # a GPU without persistence mode takes seconds to wake
DRIVERS = {12: 525, 13: 580}
"""First driver by version of CUDA (CUDA's release notes)."""
CUDA = 13  # that of the GPU profile's libraries, where they are not installed
CAPABILITY = (7, 5)  # Turing; CUDA 13 has no kernels for older ones
NEEDS_DRIVER = f"install NVIDIA's driver {DRIVERS[CUDA]} or newer"
IN_CONTAINER = "a container needs `--gpus all`"
# Where Windows' subsystem for Linux has it.
PROGRAM_FOLDERS = "/usr/lib/wsl/lib"
FIELDS = "index,uuid,name,driver_version,memory.total,memory.free"
NF4_SHARE = 0.28  # of weights in 16 bits: 4 bits and a scale of 8 bits for each 64 weights
PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
error, count = cuda.cuInit(0), ctypes.c_int()
print(error or cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""

Room = Literal["no", "fits", "swaps"]


class GpuProblem(Exception):
    """Why no GPU can be used, with the remedy, in one sentence."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. Its memory is None where the driver does not tell, as where it is the machine's."""

    index: str
    uuid: str
    name: str
    driver: str
    total_bytes: int | None
    free_bytes: int | None
    capability: tuple[int, int] | None

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"

    @property
    def memory(self) -> str:
        if self.free_bytes is None or self.total_bytes is None:
            return "memory not listed"
        return f"{self.free_bytes / GB:.1f} of {self.total_bytes / GB:.1f} GB free"


def has_gpu_profile() -> bool:
    """Whether the libraries of the GPU profile are installed."""
    return find_spec("torch") is not None


def usable_gpus() -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves to this process. Raises GpuProblem if there
    is none, if the driver or a GPU is too old, or if CUDA does not start."""
    gpus = _visible(find_gpus())
    _check_driver(gpus[0].driver, torch_cuda())
    _check_capability(gpus)
    _check_start()
    return gpus


def find_gpus() -> list[Gpu]:
    """Return all GPUs of this machine. Raises GpuProblem if there is none."""
    try:
        lines = _ask(f"--query-gpu={FIELDS},compute_cap", "--format=csv,noheader,nounits")
    except GpuProblem as problem:
        if "not a valid field" not in str(problem):
            raise
        lines = _ask(f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")  # before driver 510
    gpus = [gpu for line in lines.splitlines() if (gpu := _read(line)) is not None]
    if not gpus:
        answer = lines.strip().partition("\n")[0][:100] or "nothing"
        raise GpuProblem(f"nvidia-smi lists no GPU but says {answer!r}: {NEEDS_DRIVER}")
    return gpus


def _ask(*arguments: str) -> str:
    """Return what nvidia-smi prints. Raises GpuProblem."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), PROGRAM_FOLDERS])
    if (program := shutil.which("nvidia-smi", path=path)) is None:
        raise GpuProblem(
            f"there is no nvidia-smi, so no driver of an NVIDIA GPU: {NEEDS_DRIVER}; {IN_CONTAINER}"
        )
    try:
        status, output = _run(program, *arguments)
    except TimeoutError:
        raise GpuProblem(
            f"nvidia-smi does not answer within {ANSWER_S:.0f} s, so the driver or a GPU hangs:"
            " restart the machine"
        ) from None
    except OSError as error:
        raise GpuProblem(f"{program} cannot be run ({error.strerror}): {NEEDS_DRIVER}") from None
    if status:
        reason = output.strip().partition("\n")[0][:200] or f"status {status}"
        raise GpuProblem(
            f"nvidia-smi fails ({reason.rstrip('.')}): restart the machine after a change of the"
            f" driver, or {NEEDS_DRIVER}; {IN_CONTAINER}"
        )
    return output


def _run(*command: str) -> tuple[int, str]:
    """Run a program; return its status and what it prints. Raises TimeoutError or OSError.

    A program that waits for a driver cannot be killed, so its end is not awaited.
    """
    with TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            raise TimeoutError from None
        output.seek(0)
        return status, output.read()


def _read(line: str) -> Gpu | None:
    """Read a line of FIELDS and the capability; None for any other line."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) not in (6, 7) or not re.fullmatch(r"\d+\.[\d.]+", fields[3]):
        return None
    total_bytes, free_bytes = (
        int(field) * MIB if field.isdecimal() else None for field in fields[4:6]
    )
    version = re.fullmatch(r"(\d+)\.(\d+)", fields[-1])
    capability = (int(version[1]), int(version[2])) if version and len(fields) == 7 else None
    return Gpu(
        index=fields[0],
        uuid=fields[1],
        name=fields[2],
        driver=fields[3],
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        capability=capability,
    )


def _visible(gpus: list[Gpu]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names. Raises GpuProblem for none."""
    if (setting := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return gpus
    names = [name.strip() for name in setting.split(",")]
    if any(name.startswith("MIG-") for name in names):  # a part, whose memory is not listed
        return [replace(gpu, total_bytes=None, free_bytes=None) for gpu in gpus]
    visible = [
        gpu
        for gpu in gpus
        if any(name == gpu.index or (name and gpu.uuid.startswith(name)) for name in names)
    ]
    if not visible:
        raise GpuProblem(
            f"CUDA_VISIBLE_DEVICES={setting!r} hides the {len(gpus)} GPUs of this machine: unset it"
        )
    return visible


def torch_cuda() -> int | None:
    """Return the major version of CUDA that PyTorch was built for; None if PyTorch is not
    installed. Raises GpuProblem if it was built without CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    about: dict[str, Any] = run_path(str(Path(spec.origin).with_name("version.py")))
    if about["cuda"] is None:
        raise GpuProblem(
            f"torch {about['__version__']} is built without CUDA: delete {sys.prefix}, and run"
            " `PROFILE=gpu make install`"
        )
    return int(str(about["cuda"]).partition(".")[0])


def _check_driver(driver: str, cuda: int | None) -> None:
    """Raise GpuProblem if the driver is too old for libraries of that CUDA.

    NVIDIA's compatibility package makes an older driver sufficient, which then tells a newer CUDA.
    """
    needed = CUDA if cuda is None else cuda
    least = DRIVERS.get(needed, 0)
    if int(driver.partition(".")[0]) >= least:
        return
    version = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.\d+", _ask())
    if version is None or int(version[1]) < needed:
        has = f" has {version[0].replace(' Version', '')} and" if version else ""
        raise GpuProblem(
            f"driver {driver}{has} is too old for the libraries of the GPU profile, which need"
            f" CUDA {needed}: install NVIDIA's driver {least} or newer"
        )


def _check_capability(gpus: list[Gpu]) -> None:
    """Raise GpuProblem for a GPU without kernels, also beside newer ones: Ray would use it."""
    old = [gpu for gpu in gpus if gpu.capability is not None and gpu.capability < CAPABILITY]
    if not old:
        return
    gpu = old[0]
    major, minor = gpu.capability or CAPABILITY
    remedy = "use a newer GPU, or the CPU profile"
    if others := [other.index for other in gpus if other not in old]:
        order = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
        remedy = f"leave it out by {order} CUDA_VISIBLE_DEVICES={','.join(others)}"
    raise GpuProblem(
        f"{gpu} has compute capability {major}.{minor}, and the libraries of the GPU profile need"
        f" {CAPABILITY[0]}.{CAPABILITY[1]} (Turing) or more: {remedy}"
    )


def _check_start() -> None:
    """Raise GpuProblem if CUDA does not start in a new process, as in a container that got
    nvidia-smi but not the driver's libraries."""
    try:
        status, output = _run(sys.executable, "-I", "-S", "-c", PROBE)
    except TimeoutError:
        reason = f"no answer within {ANSWER_S:.0f} s"
    else:
        error, _, count = output.strip().partition(" ")
        if not status and error == "0" and count != "0":
            return
        reason = "libcuda.so.1 is missing" if "libcuda" in output else f"error {error}"
    raise GpuProblem(
        f"nvidia-smi lists a GPU, but CUDA does not start ({reason}): {IN_CONTAINER} and"
        " NVIDIA_DRIVER_CAPABILITIES=compute,utility; otherwise restart the machine"
    )


def needed_bytes(config: Any, store: WeightStore) -> int:
    """Return the memory that a model takes of a GPU: `gpu_memory_gb` of its configuration, or the
    size of its weights, which is the least."""
    if (memory_gb := getattr(config, "gpu_memory_gb", None)) is not None:
        return int(memory_gb * GB)
    size = sum(store.artefact(name).size_bytes for name in artefacts_of(config))
    size += sum(file.stat().st_size for file in files_of(config))
    return int(size * (NF4_SHARE if getattr(config, "quantization", "") == "nf4" else 1))


def room(needs_gb: Sequence[float], card_gb: float) -> Room:
    """Return whether models fit a GPU together, and also while one of them is swapped, when the new
    one is loaded beside the old one.

    A GPU of `card_gb` gigabytes has at least as many times 10^9 bytes for programs: it is named in
    units of 2^30, and error correction takes up to a sixteenth.
    """
    if sum(needs_gb) > card_gb:
        return "no"
    return "swaps" if sum(needs_gb) + max(needs_gb, default=0) <= card_gb else "fits"


def memory_problem(need_bytes: int, gpus: Sequence[Gpu]) -> str | None:
    """Describe the problem if a model does not fit in the free memory of the `gpus`, over which it
    is divided."""
    share = need_bytes / len(gpus)
    for gpu in gpus:
        if gpu.free_bytes is not None and gpu.free_bytes < share:
            return (
                f"needs {share / GB:.1f} GB, and {gpu.free_bytes / GB:.1f} GB are free on {gpu};"
                " use a smaller model, or end what else uses that GPU (docs/gpu.md)"
            )
    return None
