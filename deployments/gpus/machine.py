"""The NVIDIA GPUs of this machine by `nvidia-smi`, and whether CUDA works on them. PyTorch is not
imported here: that takes seconds, and a process that has started CUDA cannot fork."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryFile
from typing import Any

MIB = 2**20
ANSWER_S = 20.0  # a GPU without persistence mode takes seconds to wake
CUDA = 13  # version that the GPU profile's libraries need
DRIVER = 580  # the first version with this CUDA
CAPABILITY = (7, 5)  # Turing; CUDA 13 has no kernels for older ones
NEW_DRIVER = f"install NVIDIA's driver {DRIVER} or newer"
NEEDS_DRIVER = f"{NEW_DRIVER}; a container needs `--gpus all`"
WSL = "/usr/lib/wsl/lib"  # where Windows' subsystem for Linux has nvidia-smi
PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
error, count = cuda.cuInit(0), ctypes.c_int()
print(error or cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""


class GpuProblem(Exception):
    """The reason why no GPU can be used, with the remedy, in one sentence."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. Its sizes are 0 if nvidia-smi does not report them, as with unified memory."""

    index: str
    uuid: str
    name: str
    driver: str
    total_bytes: int
    free_bytes: int
    capability: tuple[int, int]

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


def has_gpu_profile() -> bool:
    """Whether the libraries of the GPU profile are installed."""
    return find_spec("torch") is not None


def usable_gpus() -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves to this process. Raises GpuProblem if there
    is none, if the driver or a GPU is too old, or if CUDA does not start."""
    gpus = _visible(find_gpus())
    _check_torch()
    _check_capability(gpus)  # first, since no driver helps an old GPU
    _check_driver(gpus[0].driver)
    _check_start()
    return gpus


def find_gpus() -> list[Gpu]:
    """Return all GPUs of this machine. Raises GpuProblem if there is none."""
    fields = "index,uuid,name,driver_version,memory.total,memory.free,compute_cap"
    answer = _ask(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    gpus = []
    for line in answer.splitlines():
        with suppress(ValueError):  # a line that describes no GPU
            index, uuid, name, driver, total, free, capability = line.split(", ")
            major, minor = map(int, capability.split("."))
            gpu = Gpu(index, uuid, name, driver, _bytes(total), _bytes(free), (major, minor))
            gpus.append(gpu)
    if not gpus:
        start = answer.strip().partition("\n")[0][:100] or "nothing"
        raise GpuProblem(f"nvidia-smi lists no GPU but says {start!r}: {NEEDS_DRIVER}")
    return gpus


def _bytes(mib: str) -> int:
    return int(mib) * MIB if mib.isdecimal() else 0


def _ask(*arguments: str) -> str:
    """Return what nvidia-smi prints. Raises GpuProblem."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), WSL])
    if (program := shutil.which("nvidia-smi", path=path)) is None:
        raise GpuProblem(f"nvidia-smi is missing, so no NVIDIA driver works: {NEEDS_DRIVER}")
    try:
        status, output = _run(program, *arguments)
    except TimeoutError as error:
        raise GpuProblem(f"nvidia-smi {error}: restart the machine, as its driver hangs") from None
    except OSError as error:
        raise GpuProblem(f"{program} cannot be run ({error.strerror}): {NEEDS_DRIVER}") from None
    if status:
        reason = output.strip().partition("\n")[0][:200] or f"status {status}"
        raise GpuProblem(
            f"nvidia-smi fails ({reason.rstrip('.')}): restart the machine if its driver was"
            f" changed, or {NEEDS_DRIVER}"
        )
    return output


def _run(*command: str) -> tuple[int, str]:
    """Run a program; return its status and what it prints. Raises TimeoutError or OSError. A
    program that waits for a driver cannot be killed, so its end is not awaited."""
    with TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            raise TimeoutError(f"does not answer within {ANSWER_S:.0f} s") from None
        output.seek(0)
        return status, output.read()


def _visible(gpus: list[Gpu]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, or all GPUs if it names a MIG partition.
    Raises GpuProblem if it names none of them."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None or "MIG-" in setting:
        return gpus
    names = tuple(name.strip() for name in setting.split(",") if name.strip())
    visible = [gpu for gpu in gpus if gpu.index in names or gpu.uuid.startswith(names)]
    if not visible:
        raise GpuProblem(f"CUDA_VISIBLE_DEVICES={setting!r} hides all {len(gpus)} GPUs: unset it")
    return visible


def _check_torch() -> None:
    """Raise GpuProblem if PyTorch was built without CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return
    about: dict[str, Any] = run_path(str(Path(spec.origin).with_name("version.py")))
    if about["cuda"] is None:
        profile = "PROFILE=gpu VLLM=1" if sys.prefix.endswith("-vllm") else "PROFILE=gpu"
        raise GpuProblem(
            f"torch {about['__version__']} is built without CUDA: delete {sys.prefix}, and run"
            f" `{profile} make install`"
        )


def _check_driver(driver: str) -> None:
    """Raise GpuProblem if the driver is too old. An older driver is enough with NVIDIA's
    compatibility package, with which nvidia-smi reports a newer version of CUDA."""
    if int(driver.partition(".")[0]) >= DRIVER:
        return
    version = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+)(\.\d+)?", _ask())
    if version is None or int(version[1]) < CUDA:
        raise GpuProblem(
            f"driver {driver} is too old for CUDA {CUDA}, which the libraries of the GPU profile"
            f" need: {NEW_DRIVER}"
        )


def _check_capability(gpus: list[Gpu]) -> None:
    """Raise GpuProblem if any GPU is too old for the kernels, since Ray would use it."""
    new = [gpu.index for gpu in gpus if gpu.capability >= CAPABILITY]
    for gpu in gpus:
        if gpu.capability < CAPABILITY:
            remedy = "use a newer GPU, or the CPU profile"
            if new:
                order = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
                remedy = f"leave it out by {order} CUDA_VISIBLE_DEVICES={','.join(new)}"
            raise GpuProblem(
                "{} has compute capability {}.{}, and the libraries of the GPU profile need {}.{}"
                " (Turing) or more: {}".format(gpu, *gpu.capability, *CAPABILITY, remedy)
            )


def _check_start() -> None:
    """Raise GpuProblem if CUDA does not start in a new process, as in a container that has
    nvidia-smi but not the driver's libraries."""
    try:
        status, output = _run(sys.executable, "-I", "-S", "-c", PROBE)
    except TimeoutError as error:
        reason = str(error)
    else:
        error_number, _, count = output.strip().partition(" ")
        if not status and error_number == "0" and count != "0":
            return
        reason = f"error {error_number}"
        if "libcuda" in output:
            reason = "libcuda.so.1 is missing"
    raise GpuProblem(
        f"nvidia-smi lists a GPU, but CUDA does not start ({reason}): restart the machine; a"
        " container needs `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    )
