"""A plugin of pytest that shows which tests and which code depend on order or on time.

`pytest -p tests.chaos` runs files and the tests in them in another order, and delays work that an
event loop hands to a thread before it begins and before its result is seen, as a busy machine does.
`CHAOS_SEED` repeats a run; `CHAOS_DELAY` is the longest delay in seconds, 0 for none.
"""

import asyncio
import functools
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

SEED = int(os.environ.get("CHAOS_SEED", "1"))
LONGEST_DELAY_S = float(os.environ.get("CHAOS_DELAY", "0.03"))
SHARE_DELAYED_BEFORE = 0.4
SHARE_DELAYED_AFTER = 0.3

_run_in_executor = asyncio.BaseEventLoop.run_in_executor
_delays = random.Random(SEED)


def pytest_configure() -> None:
    """Delays the threads' work of all event loops of this process."""
    if LONGEST_DELAY_S:
        asyncio.BaseEventLoop.run_in_executor = _run_late  # type: ignore[assignment,method-assign]


def pytest_report_header() -> str:
    """Returns what repeats this run."""
    return f"chaos: CHAOS_SEED={SEED} CHAOS_DELAY={LONGEST_DELAY_S}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffles the files, and the tests of each file. Workers of xdist shuffle alike."""
    order = random.Random(SEED)
    items_by_file: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        items_by_file[item.path].append(item)
    files = list(items_by_file)
    order.shuffle(files)
    items.clear()
    for file in files:
        order.shuffle(items_by_file[file])
        items.extend(items_by_file[file])


def _run_late(
    loop: asyncio.BaseEventLoop, executor: Executor | None, work: Callable[..., Any], *args: Any
) -> Any:
    @functools.wraps(work)
    def late_work(*args: Any) -> Any:
        _delay(SHARE_DELAYED_BEFORE)
        try:
            return work(*args)
        finally:
            _delay(SHARE_DELAYED_AFTER)

    return _run_in_executor(loop, executor, late_work, *args)


def _delay(share: float) -> None:
    if _delays.random() < share:
        time.sleep(_delays.random() * LONGEST_DELAY_S)
