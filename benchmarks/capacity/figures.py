"""The measured figures, one file for all parts, and what the parts share."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement
from sqlmodel import func, select

from db.database import Database

MEASURED = Path(__file__).with_name("measured.json")
INSTRUCTIONS = {"amx_int8": "AMX", "avx512f": "AVX-512"}  # by the flag of the processor
Figures: TypeAlias = dict[str, Any]


def machine() -> str:
    """The kind of machine, without its owner's names."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    kinds = [name for flag, name in INSTRUCTIONS.items() if flag in flags]
    if not kinds and "avx2" in flags:
        kinds = ["AVX2"]
    return ", ".join([f"{os.cpu_count()} cores", *kinds])


def read() -> Figures:
    """The committed figures, by part."""
    figures: Figures = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    return figures


def write(part: str, figures: Figures) -> None:
    """Replace the figures of one part; the others stay."""
    parts = {"machine": machine(), **read(), part: figures}
    MEASURED.write_text(json.dumps(parts, indent=1, sort_keys=True) + "\n")


def rounded(value: Any, digits: int = 4) -> Any:
    """Round every number of nested figures to significant digits."""
    if isinstance(value, dict):
        return {name: rounded(part, digits) for name, part in value.items()}
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep this process, and the threads that it starts, on the first `count` cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


async def count_rows(url: str, condition: ColumnElement[bool]) -> int:
    """The number of rows of a table for which the condition holds."""
    database = Database(url)
    try:
        count = select(func.count()).where(condition)
        return await database.read(lambda session: session.exec(count).one())
    finally:
        database.close()
