"""Loading of engines that several threads share, and of engines outside of the source tree."""

import gc
import re
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from configs.load import explain
from configs.settings import PROJECT_DIR
from models import registry
from models.errors import EngineError
from models.registry import ENGINES, KINDS, SPEAKER, TTS, EngineKind, load_model, load_once
from models.weights.store import WeightStore
from tests.models.configured import engines_in_use


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


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("nowhere.tts:Engine", "cannot be imported: No module named 'nowhere'"),
        (":Engine", "cannot be imported: Empty module name"),
        ("engine_with_a_bug:Engine", "cannot be imported: division by zero"),
        ("tests.engines.tone:Missing", "names no subclass of TTSEngine"),
        ("tests.engines.echo:EchoEngine", "names no subclass of TTSEngine"),
        ("models.tts.base:TTSEngine", "has no `config`, the type of its configurations"),
        ("tests.engines.tone:ToneEngine", "id: Field required; .* pitch: Extra inputs"),
        ("kokora", "does not match any of the expected tags: 'hibari'"),
        ("", "does not match any of the expected tags: 'hibari'"),
    ],
)
def test_mistakes_of_external_engines_are_named_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, reason: str
) -> None:
    (tmp_path / "engine_with_a_bug.py").write_text("1 / 0")
    (tmp_path / "own.yaml").write_text(f'{{engine: "{engine}", pitch: 3}}')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((EngineError, ValidationError)) as raised:
        load_model(TTS, str(tmp_path / "own.yaml"), WeightStore(tmp_path))
    assert re.search(reason, explain(raised.value))


def test_an_engine_is_freed_although_its_library_keeps_an_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine_that_keeps_an_error.py").write_text(
        "from tests.engines.tone import ToneEngine\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    kept = error\n"
    )
    config = (PROJECT_DIR / "tests" / "engines" / "tone.yaml").read_text()
    (tmp_path / "own.yaml").write_text(
        config.replace("tests.engines.tone", "engine_that_keeps_an_error")
    )
    monkeypatch.syspath_prepend(tmp_path)
    engine, _ = load_model(TTS, str(tmp_path / "own.yaml"), WeightStore(tmp_path))
    freed = weakref.ref(engine)
    del engine
    gc.collect()
    assert freed() is None


def test_no_two_kinds_have_an_engine_of_one_name() -> None:
    """The name alone says of a configuration what kind of model it is for."""
    names = [name for engines in registry.ENGINES.values() for name in engines]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_engine_has_a_configuration(kind: EngineKind[Any]) -> None:
    assert engines_in_use(kind) == set(ENGINES[kind.name])  # else its contract test misses it
