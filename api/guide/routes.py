"""`/guide`: the pages of docs/ as a site with search, built by `make guide`."""

from os.path import normpath
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from api.http.errors import ApiError

SITE_DIR = Path(__file__).resolve().parent / "site"

HEADERS = {
    # Enough for the theme's scripts and search worker; its scripts set styles through the DOM.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        "img-src 'self' data:; media-src 'self'; font-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # browsers revalidate by ETag: pages change under the same name
}


async def _home(_: Request) -> Response:
    return RedirectResponse("/guide/")


async def _file(request: Request) -> Response:
    if not (SITE_DIR / "index.html").is_file():
        raise ApiError("not_found", "the guide is not built; the operator can run `make guide`")
    files = StaticFiles(directory=SITE_DIR, html=True)
    response = await files.get_response(normpath(request.path_params["path"]), request.scope)
    response.headers.update(HEADERS)
    if location := response.headers.get("location"):
        # Starlette adds the slash of a folder to the whole address, whose scheme is `http` behind a
        # proxy that ends TLS.
        response.headers["location"] = urlsplit(location).path
    return response


# Plain Starlette routes keep these pages out of the OpenAPI document.
routes: list[BaseRoute] = [Route("/guide", _home), Route("/guide/{path:path}", _file)]
