"""The GPUs of a machine, by programs `nvidia-smi` that print what real ones do."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deployments.gpus import machine as module
from deployments.gpus.machine import GpuProblem, find_gpus, usable_gpus
from deployments.gpus.memory import GB, free_memory_problem

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
H100 = f"0, {UUID}, NVIDIA H100 80GB HBM3, 580.159.04, 81559, 80995, 9.0"
T4 = "1, GPU-4cf8db2d, Tesla T4, 580.95.05, 15360, 14900, 7.5"
SPARK = "0, GPU-11, NVIDIA GB10, 580.95.05, [N/A], [N/A], 12.1"
LIBRARY = """
int cuInit(unsigned flags) { return ERROR; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
"""
Install = Callable[[str], None]


def card(name: str, driver: str, capability: str, index: int = 0) -> str:
    return f"{index}, GPU-{index}f, {name}, {driver}, 8192, 8000, {capability}"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a shell script as `nvidia-smi`, the only one on the path beside its tools, and CUDA
    13 libraries as the GPU profile has them."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(module, "WSL", "")
    (tmp_path / "bin").mkdir()
    torch = tmp_path / "libraries" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemError('imported')")
    (torch / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "libraries"))

    def install(script: str) -> None:
        program = tmp_path / "bin" / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return install


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Build a libcuda.so.1 that starts with an error, or finds a number of GPUs."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def build(error: int, count: int) -> None:
        library = ["-shared", "-o", str(tmp_path / "libcuda.so.1"), "-x", "c", "-"]
        values = [f"-DERROR={error}", f"-DCOUNT={count}"]
        subprocess.run([compiler, *values, *library], input=LIBRARY.encode(), check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    return build


def lists(*lines: str, header: str = "CUDA Version: 13.0") -> str:
    """A script that answers a query with these lines, and otherwise with its header."""
    text = "\n".join(lines)
    return f"case \"$1\" in --query*) cat <<'E'\n{text}\nE\n;; *) echo '| {header} |';; esac"


def problem() -> str:
    with pytest.raises(GpuProblem) as raised:
        usable_gpus()
    sentence = str(raised.value)
    assert "\n" not in sentence and ": " in sentence, "a cause and a remedy in one sentence"
    return sentence


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (
            "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."
            " Make sure that the latest NVIDIA driver is installed and running.'; exit 9",
            "nvidia-smi fails (NVIDIA-SMI has failed because it could not communicate",
        ),
        ("echo 'No devices were found'; exit 6", "nvidia-smi fails (No devices were found): "),
        ("echo 'No devices were found'", "lists no GPU but says 'No devices were found': install"),
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "Driver/library version mismatch): restart the machine if its driver was changed",
        ),
        ("echo 'Failed to initialize NVML: Unknown Error'; exit 255", "a container needs `--gpus"),
        ("exit 139", "nvidia-smi fails (status 139)"),
        ("", "lists no GPU but says 'nothing'"),
        ("head -c 3000 /dev/urandom", "lists no GPU but says "),
        ("printf '\\377\\376, a, b, c, d, e, f\\n'", "lists no GPU but says "),
        (
            lists(card("NVIDIA RTX A4000", "550.120", "8.6"), header="CUDA Version: 12.4"),
            "driver 550.120 is too old for CUDA 13, which the libraries of the GPU profile need:"
            " install NVIDIA's driver 580 or newer",
        ),
        (
            "echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2",  # before 510
            "a valid field to query): restart the machine if its driver was changed, or install",
        ),
        (
            lists(card("NVIDIA GeForce GTX 1080", "580.95.05", "6.1")),
            "GPU 0 (NVIDIA GeForce GTX 1080) has compute capability 6.1, and the libraries of the"
            " GPU profile need 7.5 (Turing) or more: use a newer GPU, or the CPU profile",
        ),
        (
            lists(card("Tesla V100-PCIE-16GB", "535.171.04", "7.0")),
            "GPU 0 (Tesla V100-PCIE-16GB) has compute capability 7.0",
        ),
        (
            lists(card("Quadro P4000", "580.95.05", "6.1"), T4),
            "leave it out by CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1",
        ),
    ],
)
def test_a_machine_without_a_usable_gpu_is_told_the_remedy(
    smi: Install, script: str, cause: str
) -> None:
    smi(script)
    assert cause in problem()


def test_a_machine_without_a_driver_is_told_which_one_to_install(smi: Install) -> None:
    assert problem().startswith("nvidia-smi is missing, so no NVIDIA driver works: install")


def test_a_hanging_driver_is_not_waited_for(smi: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    smi("trap '' TERM; sleep 60 & wait")
    assert "nvidia-smi does not answer within" in problem()


def test_a_program_of_another_machine_is_no_driver(smi: Install, tmp_path: Path) -> None:
    smi("")
    (tmp_path / "bin" / "nvidia-smi").write_bytes(b"\x7fELF of another processor")
    assert "cannot be run (Exec format error)" in problem()


def test_pytorch_without_cuda_is_named_and_not_imported(smi: Install, tmp_path: Path) -> None:
    smi(lists(H100))
    (tmp_path / "libraries" / "torch" / "version.py").write_text(
        "__version__ = '2.13.0+cpu'\ncuda = None\n"
    )
    assert problem() == (
        f"torch 2.13.0+cpu is built without CUDA: delete {sys.prefix}, and run"
        " `PROFILE=gpu make install`"
    )


def test_usable_gpus_are_listed_with_their_memory(
    smi: Install, cuda: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(0, 2)
    smi(lists(H100, T4))
    first, second = usable_gpus()
    assert (first.uuid, first.capability, first.free_bytes) == (UUID, (9, 0), 80995 << 20)
    assert (str(second), second.total_bytes) == ("GPU 1 (Tesla T4)", 15360 << 20)
    for setting, names in {"1": ["1"], UUID[:12]: ["0"], "MIG-1": ["0", "1"]}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        assert [gpu.index for gpu in usable_gpus()] == names
    for setting in ("", "-1", "7"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        assert problem().startswith(f"CUDA_VISIBLE_DEVICES={setting!r} hides all 2 GPUs")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    # Its memory is the machine's.
    smi(lists(SPARK))
    assert usable_gpus()[0].total_bytes == 0
    # With NVIDIA's compatibility package on an older driver.
    smi(lists(card("NVIDIA A100", "550.120", "8.0"), header="CUDA UMD Version: 13.0"))
    assert [gpu.driver for gpu in usable_gpus()] == ["550.120"]


@pytest.mark.parametrize(("error", "count", "cause"), [(803, 1, "error 803"), (0, 0, "error 0")])
def test_a_driver_whose_cuda_does_not_start_is_a_problem(
    smi: Install, cuda: Callable[[int, int], None], error: int, count: int, cause: str
) -> None:
    cuda(error, count)
    smi(lists(H100))
    assert f"CUDA does not start ({cause}): restart the machine; a container needs" in problem()


def test_nvidia_smi_without_the_library_of_the_driver_is_a_problem(smi: Install) -> None:
    try:
        __import__("ctypes").CDLL("libcuda.so.1")
    except OSError:
        smi(lists(H100))
        assert (
            "CUDA does not start (libcuda.so.1 is missing): restart the machine; a container"
            in problem()
        )
    else:
        pytest.skip("this machine has CUDA")


def test_what_does_not_fit_the_free_memory_is_refused_with_both_amounts(smi: Install) -> None:
    smi(lists(card("NVIDIA GeForce RTX 3070", "580.95.05", "8.6"), H100.replace("0, ", "1, ", 1)))
    small, large = find_gpus()
    assert free_memory_problem(6 * GB, [small]) is None
    assert free_memory_problem(13 * GB, [large]) is None
    assert str(free_memory_problem(13 * GB, [small])).startswith(
        "needs 13.0 GB, and 8.4 GB are free on GPU 0 (NVIDIA GeForce RTX 3070); use"
    )
    assert "needs 20.0 GB, and 8.4 GB" in str(free_memory_problem(40 * GB, [small, large]))
    smi(lists(SPARK))
    assert free_memory_problem(900 * GB, find_gpus()) is None
