"""Artefacts pinned to a commit, whose files the hub lists."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from configs.schema.catalogue import Catalogue
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights.fetch import fetch, missing
from models.weights.store import WeightStore
from tests.models.weights.test_fetch import MODEL, Recorder
from tests.models.weights.test_hub import git_object

COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """A model hub that lists and serves the files of a commit."""

    files: dict[str, bytes] = {}
    asked: list[str] = []

    def do_GET(self) -> None:
        Hub.asked.append(self.path)
        if not self.path.startswith("/api/"):
            self._answer(Hub.files[self.path.rpartition("/")[2]])
            return
        listed = [
            {"type": "file", "path": path, "size": len(MODEL), "oid": git_object(MODEL)}
            for path in (*Hub.files, "README.md")
        ]
        self._answer(json.dumps(listed).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.files, Hub.asked = {"m.bin": MODEL}, []
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        url + "/{repo_id}/resolve/{revision}/{filename}",
    )
    yield
    server.shutdown()
    server.server_close()


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


def test_the_file_list_of_a_commit_is_fetched_and_cached(hub: None, store: WeightStore) -> None:
    with pytest.raises(WeightsMissing, match="never listed"):
        store.folder("tiny")
    assert missing(store, ["tiny"]) == ["tiny"]
    fetch(store, ["tiny"], Recorder())
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL
    tree = f"/api/models/a/b/tree/{COMMIT}?recursive=true"
    assert Hub.asked == [tree, f"/a/b/resolve/{COMMIT}/m.bin"]
    again = WeightStore(store.root, store.catalogue)
    assert missing(again, ["tiny"]) == []
    fetch(again, ["tiny"], Recorder())
    assert len(Hub.asked) == 2


def test_a_file_that_differs_from_the_listed_hash_is_refused(hub: None, store: WeightStore) -> None:
    Hub.files["m.bin"] = MODEL[:-1] + b"?"
    assert hashlib.sha256(Hub.files["m.bin"]).digest() != hashlib.sha256(MODEL).digest()
    with pytest.raises(WeightsCorrupt, match=git_object(MODEL)):
        fetch(store, ["tiny"], Recorder())


def test_the_error_names_a_file_that_the_commit_lacks(hub: None, store: WeightStore) -> None:
    Hub.files.clear()
    with pytest.raises(WeightsMissing, match=r"no \['m.bin'\] at cccc"):
        fetch(store, ["tiny"], Recorder())


def test_an_unreachable_hub_raises_weights_missing(
    store: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(WeightsMissing, match="does not list"):
        fetch(store, ["tiny"], Recorder())
