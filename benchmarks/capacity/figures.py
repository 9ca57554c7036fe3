"""The measured figures, one file for all parts, and the processes that the parts start."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement
from sqlmodel import func, select

from benchmarks.service import processor_seconds
from db.database import Database

MEASURED = Path(__file__).with_name("measured.json")
Figures: TypeAlias = dict[str, Any]
DEPLOYMENT = re.compile(r"ServeReplica:\w+:(\w+)")


def machine() -> str:
    """The kind of machine, without its owner's names."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    kinds = [name for flag, name in (("amx_int8", "AMX"), ("avx512f", "AVX-512")) if flag in flags]
    kinds = kinds or [name for flag, name in (("avx2", "AVX2"),) if flag in flags]
    return ", ".join([f"{os.cpu_count()} cores", *kinds])


def read() -> Figures:
    """The committed figures, by part."""
    found: Figures = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    return found


def write(part: str, figures: Figures) -> None:
    """Replaces those of one part; the others stay."""
    known = {"machine": machine(), **read(), part: figures}
    MEASURED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def rounded(figures: Figures, digits: int = 4) -> Figures:
    """The same with so many significant digits."""
    shown: Figures = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            shown[name] = rounded(value, digits)
        elif isinstance(value, float):
            shown[name] = float(f"{value:.{digits}g}")
        else:
            shown[name] = value
    return shown


def quantile(values: Sequence[float], share: float) -> float:
    """Of no values 0."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class CpuTimes:
    """Core seconds of processes and their descendants, without those that have ended."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._before = self._now()

    def _now(self) -> dict[str, dict[str, float]]:
        return {name: processor_seconds(pid) for name, pid in self._pids.items()}

    def used(self) -> dict[str, float]:
        """Since the beginning, by the names of the processes."""
        now = self._now()
        return {name: sum(now[name].values()) - sum(self._before[name].values()) for name in now}

    def used_by_deployment(self, name: str) -> dict[str, float]:
        """Of the descendants of one process, by the deployment in their titles; "" is Ray's own.

        Ray changes a title while a replica works, so those of the beginning count, too.
        """
        used: dict[str, float] = defaultdict(float)
        before = {title.partition(" ")[0]: (title, s) for title, s in self._before[name].items()}
        for title, seconds in processor_seconds(self._pids[name]).items():
            old, spent = before.get(title.partition(" ")[0], ("", 0.0))
            found = DEPLOYMENT.search(title) or DEPLOYMENT.search(old)
            used[found[1] if found else ""] += seconds - spent
        return dict(used)


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """This process, and the threads that it starts from now on, on the first `count` cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


async def rows(url: str, which: ColumnElement[bool]) -> int:
    """How many rows of a table there are for which that holds."""
    database = Database(url)
    try:
        count = select(func.count()).where(which)
        return await database.read(lambda session: session.exec(count).one())
    finally:
        database.close()
