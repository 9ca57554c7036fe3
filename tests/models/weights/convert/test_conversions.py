"""The conversions of published weights, as `make weights` runs them."""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from configs.schema.catalogue import Conversion
from configs.settings import weights_dir
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights import __main__ as program
from models.weights.fetch import discard_corrupt, fetch, missing
from models.weights.store import WeightStore
from tests.models.weights.test_checks import store
from tests.models.weights.test_fetch import MODEL, Recorder, root, wheels

__all__ = ["root", "store", "wheels"]  # fixtures

CONVERTED = [
    pytest.param(name, marks=pytest.mark.weights)
    for name, artefact in WeightStore(Path()).catalogue.artefacts.items()
    if artefact.conversion
]


@pytest.mark.parametrize("name", CONVERTED)
def test_a_fetch_converts_once_and_removes_outdated_conversions(name: str, tmp_path: Path) -> None:
    here, store = WeightStore(weights_dir()), WeightStore(tmp_path)
    try:
        whole = here.folder(name)
    except WeightsMissing as error:
        pytest.skip(str(error))
    shutil.copytree(whole, store.artefact_path(name))
    with pytest.raises(WeightsMissing, match="make weights"):
        store.converted(name)
    conversion = store.artefact(name).conversion
    assert conversion
    outdated = store.derived(name, f"v{conversion.version - 1}-{conversion.files[0]}")
    outdated.parent.mkdir(parents=True)
    outdated.touch()
    assert missing(store, [name]) == [name]
    fetch(store, [name], Recorder())
    paths = store.converted(name)
    assert set(paths) == set(conversion.files) and not outdated.exists()
    for path in paths.values():
        assert path.suffix == ".json" or onnx.load(path).graph.output
    times = {path: path.stat().st_mtime_ns for path in paths.values()}
    assert missing(store, [name]) == []
    fetch(store, [name], Recorder())
    assert times == {path: path.stat().st_mtime_ns for path in paths.values()}


def test_a_converted_file_with_wrong_bytes_is_found_and_converted_again(
    store: WeightStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("convert_backwards")
    module.convert = lambda folder: {  # type: ignore[attr-defined]
        "back.bin": (folder / "model.bin").read_bytes()[::-1]
    }
    monkeypatch.setitem(sys.modules, module.__name__, module)
    backwards = Conversion(module=module.__name__, version=1, files=("back.bin",))
    tiny = store.catalogue.artefacts["tiny"].model_copy(update={"conversion": backwards})
    monkeypatch.setitem(store.catalogue.artefacts, "tiny", tiny)
    assert program.fetch_weights() == 0 == program.fetch_weights()
    assert capsys.readouterr().err.count("stored again") == 0
    path = store.converted("tiny")["back.bin"]
    path.write_bytes(MODEL)
    with pytest.raises(WeightsCorrupt, match="converted from 'tiny'"):
        store.verify("tiny")
    assert program.fetch_weights() == 0
    assert "'v1-back.bin' of 'tiny' is corrupt" in capsys.readouterr().err
    assert path.read_bytes() == MODEL[::-1]
    # Unchanged for size and time: only reading it again finds it.
    state = path.stat()
    path.write_bytes(MODEL)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert discard_corrupt(store, ["tiny"], reread=False) == []
    assert discard_corrupt(store, ["tiny"]) == [("tiny", "v1-back.bin")]
