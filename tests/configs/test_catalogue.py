"""The catalogue of weights: every artefact is complete, pinned, and states its licence."""

from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema.catalogue import Artefact, HubSource
from models.weights.store import load_catalogue

SHA256 = "0" * 64


def artefact(**changes: Any) -> Artefact:
    fields: dict[str, Any] = {
        "description": "d",
        "licence": "MIT",
        "homepage": "https://example.org",
        "required": True,
        "files": {"model.bin": {"size_bytes": 1, "sha256": SHA256}},
        "sources": [
            {"kind": "pypi", "files": {"model.bin": [{"package": "a==1", "path": "a/model.bin"}]}}
        ],
    }
    return Artefact.model_validate(fields | changes)


def test_every_artefact_states_its_licence_and_homepage() -> None:
    for name, entry in load_catalogue().artefacts.items():
        assert entry.licence and entry.homepage.startswith("https://"), name


def test_every_hub_source_is_pinned_to_a_revision() -> None:
    for name, entry in load_catalogue().artefacts.items():
        for source in entry.sources:
            if isinstance(source, HubSource):
                assert source.revision not in ("main", "master"), name


def test_kokoro_has_its_54_stock_voices() -> None:
    files = load_catalogue().artefacts["kokoro-voices"].files
    assert len(files) == 54
    assert {file.size_bytes for file in files.values()} == {510 * 256 * 4}


def test_a_package_source_without_a_pinned_version_is_refused() -> None:
    member = {"package": "@scope/a", "path": "b"}
    with pytest.raises(ValidationError, match="pin the version"):
        artefact(sources=[{"kind": "npm", "files": {"model.bin": [member]}}])


def test_a_source_that_lacks_a_file_of_the_artefact_is_refused() -> None:
    with pytest.raises(ValidationError, match="lacks"):
        artefact(sources=[{"kind": "hub", "repo": "a/b", "revision": "1", "files": {}}])


@pytest.mark.parametrize("name", ["../model.bin", "/model.bin", "a/../../b", "a//b", ""])
def test_a_file_name_that_is_no_plain_relative_path_is_refused(name: str) -> None:
    source = {"kind": "pypi", "files": {"*": [{"package": "a==1", "path": "{name}"}]}}
    with pytest.raises(ValidationError):
        artefact(files={name: {"size_bytes": 1, "sha256": SHA256}}, sources=[source])


@pytest.mark.parametrize("pins", [{}, {"sha256": SHA256, "git_object": "0" * 40}])
def test_a_file_is_pinned_by_exactly_one_of_sha256_and_git_object(pins: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either a sha256 or a git_object"):
        artefact(files={"model.bin": {"size_bytes": 1, **pins}})


COMMIT = {"kind": "hub", "repo": "a/b", "revision": "a" * 40, "files": {"model.bin": "m.bin"}}


def test_an_artefact_without_files_needs_one_hub_source_pinned_to_a_commit() -> None:
    assert artefact(files={}, sources=[COMMIT]).listed_source().revision == "a" * 40
    for source in ({**COMMIT, "revision": "v1.0"}, {**COMMIT, "files": {"*": "{name}"}}):
        with pytest.raises(ValidationError, match="without files"):
            artefact(files={}, sources=[source])
    with pytest.raises(ValidationError, match="without files"):
        artefact(files={})
    with pytest.raises(ValidationError, match="without files"):
        artefact(files={}, sources=[COMMIT, COMMIT])


def test_the_gpu_profile_adds_artefacts_to_the_cpu_profile() -> None:
    more = artefact(required=False, required_on_gpu=True)
    assert artefact().needed_by("gpu") and artefact().needed_by("cpu")
    assert more.needed_by("gpu") and not more.needed_by("cpu")


def test_the_fingerprint_of_an_artefact_changes_with_the_hash_of_a_file() -> None:
    other = artefact(files={"model.bin": {"size_bytes": 1, "sha256": "1" * 64}})
    assert artefact().fingerprint != other.fingerprint
