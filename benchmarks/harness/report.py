"""What every benchmark prints: the machine and the versions, percentiles, and whether a target is
met."""

import argparse
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of options whose help is the docstring of the program."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def begin(options: argparse.ArgumentParser, *packages: str) -> argparse.Namespace:
    """Parse the command line, and print the machine and the versions of the packages."""
    arguments = options.parse_args()
    print(hardware())
    if packages:
        print(versions(*packages))
    return arguments


def hardware() -> str:
    """One line: processor, cores, memory, Python and the system."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def versions(*packages: str) -> str:
    """The versions of the libraries that a result depends on, on one line."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by linear interpolation; 0 of no values."""
    return float(np.percentile(values, percent)) if len(values) else 0.0


def p50_p95(seconds: Sequence[float]) -> str:
    """The median and the 95th percentile of durations, in milliseconds."""
    if not len(seconds):
        return "none"
    p50_ms, p95_ms = np.percentile(seconds, (50, 95)) * 1000
    return f"p50 {p50_ms:.0f} ms, p95 {p95_ms:.0f} ms"


def verdict(met: bool) -> str:
    """Whether a target was met, in a word."""
    return "met" if met else "MISSED"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
