"""The conversions of published weights, as `make weights` runs them."""

import shutil
from pathlib import Path
from typing import get_args

import onnx
import pytest

from configs.schema.catalogue import Artefact
from configs.settings import weights_dir
from models.errors import WeightsMissing
from models.weights.fetch import fetch, missing
from models.weights.store import CONVERSIONS, WeightStore
from tests.models.weights.test_fetch import Recorder

CONVERTED = [
    pytest.param(name, marks=pytest.mark.weights)
    for name, artefact in WeightStore(Path()).catalogue.artefacts.items()
    if artefact.conversion
]


def test_the_catalogue_schema_allows_exactly_the_known_conversions() -> None:
    annotation = Artefact.model_fields["conversion"].annotation
    literal = next(one for one in get_args(annotation) if get_args(one))
    assert set(get_args(literal)) == set(CONVERSIONS)


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
    conversion = CONVERSIONS[str(store.artefact(name).conversion)]
    outdated = store.derived(name, f"v{conversion.version - 1}-{conversion.files[0]}")
    outdated.parent.mkdir(parents=True)
    outdated.touch()
    assert missing(store, [name]) == [name]
    fetch(store, [name], Recorder())
    paths = store.converted(name)
    assert set(paths) == set(conversion.files) and not outdated.exists()
    for path in paths.values():
        assert onnx.load(path).graph.output
    times = {path: path.stat().st_mtime_ns for path in paths.values()}
    assert missing(store, [name]) == []
    fetch(store, [name], Recorder())
    assert times == {path: path.stat().st_mtime_ns for path in paths.values()}
