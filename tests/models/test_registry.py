"""Loading of engines that several threads share."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models import registry
from models.registry import SPEAKER, load_once
from models.weights.store import WeightStore


def test_concurrent_first_calls_load_the_engine_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []

    def slow_load(kind: object, name: str, weights: WeightStore) -> object:
        loads.append(name)
        time.sleep(0.2)
        return object()

    monkeypatch.setattr(registry, "load", slow_load)
    get = load_once(SPEAKER, "speaker/resemblyzer", WeightStore(tmp_path))
    assert not loads
    with ThreadPoolExecutor(4) as threads:
        engines = list(threads.map(lambda _: get(), range(4)))
    assert loads == ["speaker/resemblyzer"] and len(set(map(id, engines))) == 1
