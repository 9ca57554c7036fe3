"""Fetching weights from a local hub: resumed downloads, git object ids, refusals."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from configs.schema.catalogue import Catalogue
from models.errors import WeightsCorrupt
from models.weights.fetch import discard_corrupt, fetch
from models.weights.store import WeightStore
from tests.models.weights.local_hub import git_object
from tests.models.weights.test_fetch import MODEL, Recorder, catalogue, run_child


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Hub(BaseHTTPRequestHandler):
    """A model hub with one file, which supports Range and can break off a response."""

    requests: list[str | None] = []
    break_after: int | None = None
    body = MODEL
    status = 200

    def do_GET(self) -> None:
        assert self.path == "/someone/something/resolve/v1/weights/model.bin"
        asked = self.headers["Range"]
        Hub.requests.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        body = Hub.body[start:]
        self.send_response(206 if asked else Hub.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: Hub.break_after])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.requests, Hub.break_after, Hub.body, Hub.status = [], None, MODEL, 200
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


HUB_SOURCE = {
    "kind": "hub",
    "repo": "someone/something",
    "revision": "v1",
    "files": {"*": "weights/{name}"},
}


def test_an_interrupted_download_resumes_with_a_range_request(root: Path, hub: str) -> None:
    shape = catalogue([HUB_SOURCE], model=MODEL)
    Hub.break_after = 200_000
    assert run_child(root, shape, HF_ENDPOINT=hub) == 1
    Hub.break_after = None
    assert run_child(root, shape, HF_ENDPOINT=hub) == 0
    WeightStore(root, shape).verify("tiny")
    assert Hub.requests == [None, "bytes=200000-"]


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    f"oid sha256:{hashlib.sha256(MODEL).hexdigest()}\nsize {len(MODEL)}\n"
).encode()


@pytest.mark.parametrize("named", [MODEL, POINTER], ids=["file", "pointer of Git LFS"])
def test_a_file_can_be_pinned_by_its_git_object_id(
    root: Path, hub: str, monkeypatch: pytest.MonkeyPatch, named: bytes
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        hub + "/{repo_id}/resolve/{revision}/{filename}",
    )
    file = {"size_bytes": len(MODEL), "git_object": git_object(named)}
    tiny = catalogue([HUB_SOURCE], model=MODEL).artefacts["tiny"]
    shape = Catalogue.model_validate(
        {"artefacts": {"tiny": {**tiny.model_dump(), "files": {"model.bin": file}}}}
    )
    store = WeightStore(root, shape)
    Hub.body = MODEL[:-1] + b"?"
    with pytest.raises(WeightsCorrupt, match=git_object(named)):
        fetch(store, ["tiny"], Recorder())
    Hub.body = MODEL
    fetch(store, ["tiny"], Recorder())
    assert (store.verify("tiny") / "model.bin").read_bytes() == MODEL
    assert discard_corrupt(store, ["tiny"]) == []
    [blob] = (root / "blobs").iterdir()
    blob.write_bytes(Hub.body[:-1] + b"?")
    with pytest.raises(WeightsCorrupt, match=git_object(named)):
        store.verify("tiny")
    assert discard_corrupt(store, ["tiny"]) == [("tiny", "model.bin")]


def test_an_unauthorised_download_fails_with_a_hint_at_hf_token(
    root: Path, hub: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Hub.status = 401
    assert run_child(root, catalogue([HUB_SOURCE], model=MODEL), HF_ENDPOINT=hub) == 1
    assert "HTTP 401; HF_TOKEN must be" in capfd.readouterr().err


def test_a_download_larger_than_its_declared_size_is_aborted(root: Path, hub: str) -> None:
    Hub.body = MODEL * 20
    shape = catalogue([HUB_SOURCE], model=MODEL)
    assert run_child(root, shape, HF_ENDPOINT=hub) == 1
    partial = list((root / "downloads").glob("file-*"))
    assert sum(path.stat().st_size for path in partial) < len(MODEL) * 5
