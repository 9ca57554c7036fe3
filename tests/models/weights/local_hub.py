"""A model hub on this machine: one repository with a commit, or a folder of files as a mirror."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "c" * 40


def git_object(data: bytes) -> str:
    """The git hash of a file."""
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class LocalHub(ThreadingHTTPServer):
    """Lists `files` at COMMIT, those of `lfs` with their SHA-256, and serves them with Range."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.lfs: set[str] = set()  # paths
        self.card: Any = {"license": "apache-2.0"}
        self.listed: dict[str, dict[str, Any]] = {}  # what the list says of a path in place of it
        self.commit = COMMIT
        self.break_after: int | None = None  # bytes of a response
        self.status = 200  # of whole files
        self.asked: list[str] = []  # paths, with their Range

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has read enough."""

    def siblings(self) -> list[dict[str, Any]]:
        found = []
        for path, data in self.files.items():
            one = {"rfilename": path, "size": len(data), "blobId": git_object(data)}
            if path in self.lfs:
                one["lfs"] = {"size": len(data), "sha256": sha256(data), "pointerSize": 134}
            found.append(one | self.listed.get(path, {}))
        return found


class _Handler(BaseHTTPRequestHandler):
    server: LocalHub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        asked = self.headers["Range"]
        self.server.asked.append(f"{path} {asked}" if asked else path)
        if path.startswith("/api/models/"):
            name = path.removeprefix("/api/models/").partition("/revision/")[0]
            about = {"id": name, "sha": self.server.commit, "siblings": self.server.siblings()}
            self._answer(json.dumps({**about, "cardData": self.server.card}).encode())
            return
        file = re.sub(rf"^/[^/]+/[^/]+/resolve/{COMMIT}/|^/", "", path)
        if file not in self.server.files:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self._answer(self.server.files[file][start:], 206 if asked else self.server.status)

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        is_list = self.path.startswith("/api/")
        self.wfile.write(body if is_list else body[: self.server.break_after])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[LocalHub]:
    hub = LocalHub()
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


def use_hub(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process finds the hub there."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        hub.url + "/{repo_id}/resolve/{revision}/{filename}",
    )
