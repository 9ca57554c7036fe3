"""A mirror of weights that is slow, cuts, or alters, and Serve's API with a gateway, over HTTP."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK = 64 << 10


class Mirror(ThreadingHTTPServer):
    """Serves `data` under its SHA-256, with Range."""

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _MirrorHandler)
        self.data = data
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.altered = False
        self.cut_at: int | None = None  # bytes of the file, at which the connection ends
        self.block_s = 0.0  # between two blocks
        self.begins: list[int] = []  # the first byte of each request
        self.url = f"http://127.0.0.1:{self.server_port}"


class _MirrorHandler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        mirror = self.server
        if self.path != f"/{mirror.sha256}":
            self.send_error(404)
            return
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=")[:-1])
        mirror.begins.append(begin)
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(mirror.data) - begin))
        self.end_headers()
        data = mirror.data[::-1] if mirror.altered else mirror.data
        end = len(data) if mirror.cut_at is None else mirror.cut_at
        try:
            for start in range(begin, end, BLOCK):
                self.wfile.write(data[start : min(start + BLOCK, end)])
                time.sleep(mirror.block_s)
        except OSError:  # the client has left
            pass
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class ServeApi(ThreadingHTTPServer):
    """Takes what is deployed, and says that all of it runs; the gateway is ready."""

    def __init__(self, application: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _ServeHandler)
        self.applications = {application["name"]: application}
        self.deployed: list[dict[str, Any]] = []  # the `user_config` of Chat in each deployment
        self.url = f"http://127.0.0.1:{self.server_port}"


class _ServeHandler(BaseHTTPRequestHandler):
    server: ServeApi

    def do_GET(self) -> None:
        if not self.path.startswith("/api"):
            return self._answer({"status": "ok", "degraded": []})
        running = {
            name: {
                "status": "RUNNING",
                "deployments": {},
                "deployed_app_config": config,
                "last_deployed_time_s": time.time(),
            }
            for name, config in self.server.applications.items()
        }
        return self._answer({"proxy_location": "Disabled", "applications": running})

    def do_PUT(self) -> None:
        config = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.applications = {one["name"]: one for one in config["applications"]}
        self.server.deployed += [
            entry["user_config"]
            for one in config["applications"]
            for entry in one["deployments"]
            if entry["name"] == "Chat"
        ]
        self._answer({})

    def _answer(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
