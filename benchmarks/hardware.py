"""The hardware and library versions that each benchmark prints beside its result."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def hardware() -> str:
    """One line: processor, cores, memory, Python and the system."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def versions(*packages: str) -> str:
    """The versions of the libraries that a result depends on, on one line."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
