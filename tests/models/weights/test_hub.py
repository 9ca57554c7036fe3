"""Fetching weights from a local hub: git object ids and refusals."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.schema.catalogue import Catalogue
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights import __main__ as program
from models.weights.fetch import discard_corrupt, fetch
from models.weights.store import WeightStore
from tests.models.weights.local_hub import COMMIT, LocalHub, git_object, serving, use_hub
from tests.models.weights.test_fetch import MODEL, Recorder, catalogue


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with serving() as running:
        running.files = {FILE: MODEL}
        use_hub(running, monkeypatch)
        yield running


FILE = "weights/model.bin"
HUB_SOURCE = {
    "kind": "hub",
    "repo": "someone/something",
    "revision": COMMIT,
    "files": {"*": "weights/{name}"},
}


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    f"oid sha256:{hashlib.sha256(MODEL).hexdigest()}\nsize {len(MODEL)}\n"
).encode()


@pytest.mark.parametrize("named", [MODEL, POINTER], ids=["file", "pointer of Git LFS"])
def test_a_file_can_be_pinned_by_its_git_object_id(root: Path, hub: LocalHub, named: bytes) -> None:
    file = {"size_bytes": len(MODEL), "git_object": git_object(named)}
    tiny = catalogue([HUB_SOURCE], model=MODEL).artefacts["tiny"]
    shape = Catalogue.model_validate(
        {"artefacts": {"tiny": {**tiny.model_dump(), "files": {"model.bin": file}}}}
    )
    store = WeightStore(root, shape)
    hub.files[FILE] = MODEL[:-1] + b"?"
    with pytest.raises(WeightsCorrupt, match=git_object(named)):
        fetch(store, ["tiny"], Recorder())
    hub.files[FILE] = MODEL
    fetch(store, ["tiny"], Recorder())
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL
    assert discard_corrupt(store, ["tiny"]) == []
    [blob] = (root / "blobs").iterdir()
    blob.write_bytes(MODEL[:-1] + b"?")
    with pytest.raises(WeightsCorrupt, match=git_object(named)):
        store.verify("tiny")
    assert discard_corrupt(store, ["tiny"]) == [("tiny", "model.bin")]


def test_an_unauthorised_download_fails_with_a_hint_at_hf_token(root: Path, hub: LocalHub) -> None:
    hub.status = 401
    with pytest.raises(WeightsMissing, match="HTTP 401; HF_TOKEN must be"):
        fetch(WeightStore(root, catalogue([HUB_SOURCE], model=MODEL)), ["tiny"], Recorder())


@pytest.mark.parametrize("status", [401, 403], ids=["no token", "token without access"])
def test_gated_weights_are_left_out_with_a_sentence_and_come_later(
    root: Path,
    hub: LocalHub,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny = catalogue([HUB_SOURCE], model=MODEL).artefacts["tiny"]
    gated = tiny.model_copy(update={"gated": "voices", "homepage": "https://hub.example/tiny"})
    store = WeightStore(root, Catalogue(artefacts={"tiny": gated}))
    monkeypatch.setattr(program, "WeightStore", lambda _root: store)
    hub.status = status
    assert program.fetch_weights() == 0
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and line.startswith(
        "NOTE: tiny is not on this machine. It would add voices: accept its terms at"
        " https://hub.example/tiny, and set HF_TOKEN to a token of the account that accepted them"
        " (no source gave"
    )
    assert f"HTTP {status}" in line
    assert program.fetch_weights(["tiny"]) == 1  # asked for by name
    assert "error: tiny is not on this machine. It would add voices" in capsys.readouterr().err
    hub.status = 200
    assert program.fetch_weights() == 0 and capsys.readouterr().err.count("NOTE") == 0
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL


def test_a_download_larger_than_its_declared_size_is_aborted(root: Path, hub: LocalHub) -> None:
    hub.files[FILE] = MODEL * 20
    with pytest.raises(WeightsMissing, match="longer than it should be"):
        fetch(WeightStore(root, catalogue([HUB_SOURCE], model=MODEL)), ["tiny"], Recorder())
    partial = list((root / "downloads").glob("file-*"))
    assert sum(path.stat().st_size for path in partial) < len(MODEL) * 5
