"""Artefacts pinned to a commit, whose files the hub lists."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.schema.catalogue import Catalogue
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights.fetch import fetch, missing
from models.weights.mirror import fill_mirror
from models.weights.store import WeightStore
from tests.models.weights.local_hub import COMMIT, LocalHub, git_object, serving, use_hub
from tests.models.weights.test_fetch import MODEL, Recorder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with serving() as found:
        found.files = {"m.bin": MODEL, "README.md": b"about"}
        use_hub(found, monkeypatch)
        yield found


@pytest.fixture
def store(tmp_path: Path) -> WeightStore:
    tiny = {
        "description": "d",
        "licence": "MIT",
        "homepage": "https://example.org",
        "required": False,
        "sources": [
            {"kind": "hub", "repo": "a/b", "revision": COMMIT, "files": {"model.bin": "m.bin"}}
        ],
    }
    shape = Catalogue.model_validate({"artefacts": {"tiny": tiny}})
    return WeightStore(tmp_path / "cache", shape)


def test_the_file_list_of_a_commit_is_fetched_and_cached(hub: LocalHub, store: WeightStore) -> None:
    with pytest.raises(WeightsMissing, match="never listed"):
        store.folder("tiny")
    assert missing(store, ["tiny"]) == ["tiny"]
    fetch(store, ["tiny"], Recorder())
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL
    assert hub.asked == [f"/api/models/a/b/revision/{COMMIT}", f"/a/b/resolve/{COMMIT}/m.bin"]
    again = WeightStore(store.root, store.catalogue)
    assert missing(again, ["tiny"]) == []
    fetch(again, ["tiny"], Recorder())
    assert len(hub.asked) == 2


def test_a_file_that_differs_from_the_listed_hash_is_refused(
    hub: LocalHub, store: WeightStore
) -> None:
    hub.listed = {"m.bin": {"blobId": git_object(MODEL[:-1] + b"?")}}
    with pytest.raises(WeightsCorrupt, match=git_object(MODEL[:-1] + b"?")):
        fetch(store, ["tiny"], Recorder())


def test_the_error_names_a_file_that_the_commit_lacks(hub: LocalHub, store: WeightStore) -> None:
    hub.files.clear()
    with pytest.raises(WeightsMissing, match=r"no \['m.bin'\] at cccc"):
        fetch(store, ["tiny"], Recorder())


def test_an_unreachable_hub_raises_weights_missing(
    store: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(WeightsMissing, match="does not list"):
        fetch(store, ["tiny"], Recorder())


@pytest.mark.parametrize("by_address", [False, True])
def test_a_mirror_replaces_the_hub_for_lists_and_files(
    hub: LocalHub,
    store: WeightStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_address: bool,
) -> None:
    fetch(store, ["tiny"], Recorder())
    folder = tmp_path / "mirror"
    assert fill_mirror(store, ["tiny"], folder) == len(MODEL)
    assert fill_mirror(store, ["tiny"], folder) == 0
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    hub.files = {
        one.relative_to(folder).as_posix(): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file()
    }
    monkeypatch.setenv("ANTIPHON_MIRROR", f"{hub.url}/" if by_address else str(folder))
    offline = WeightStore(tmp_path / "offline", store.catalogue)
    fetch(offline, ["tiny"], Recorder())
    assert (offline.verify("tiny") / "model.bin").read_bytes() == MODEL
