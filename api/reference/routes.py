"""`/docs`: the API reference, Swagger UI over `/openapi.json` with no files from other hosts."""

import gzip
from functools import cache
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

STATIC_DIR = Path(__file__).resolve().parent / "static"

HEADERS = {
    # Swagger UI uses inline styles, and plays and saves audio responses.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; media-src data: blob:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept-Encoding",
}


def _swagger_dir() -> Path:
    """Returns the folder of swagger-ui-py's files. Its code, for other frameworks, is not used."""
    spec = find_spec("swagger_ui")
    assert spec is not None and spec.origin is not None, "swagger-ui-py is not installed"
    return Path(spec.origin).parent / "static"


def _file(url: str, path: Path) -> Route:
    compressed = cache(lambda: gzip.compress(path.read_bytes()))  # Swagger: 1.6 MB become 0.4

    async def serve(request: Request) -> Response:
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return FileResponse(path, headers=HEADERS)
        headers = {**HEADERS, "Content-Encoding": "gzip"}
        content = await to_thread.run_sync(compressed)
        return Response(content, media_type=guess_type(path)[0], headers=headers)

    return Route(url, serve)


# Plain Starlette routes keep these pages out of the OpenAPI document.
routes: list[BaseRoute] = [
    _file("/docs", STATIC_DIR / "index.html"),
    *(_file(f"/docs/{name}", STATIC_DIR / name) for name in ("reference.js", "reference.css")),
    *(_file(f"/docs/{n}", _swagger_dir() / n) for n in ("swagger-ui-bundle.js", "swagger-ui.css")),
]
