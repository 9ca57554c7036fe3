"""The web console: a page for synthesis, transcription, chat, API keys, voices and the
account."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from api.http.openapi import static_file
from api.http.routing import services_of
from configs.settings import BRAND

STATIC_DIR = Path(__file__).resolve().parent / "static"

HEADERS = {
    # Only our own files run, and no other site may frame a page that holds a key.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; media-src 'self' data: blob:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}

_PAGE = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
_PAGE = _PAGE.replace('<html lang="en">', f'<html lang="en" data-brand="{BRAND}">')


async def _index(request: Request) -> Response:
    policy = services_of(request).infrastructure.settings.sign_up
    page = _PAGE.replace('<html lang="en"', f'<html lang="en" data-sign-up="{policy}"')
    return HTMLResponse(page, headers=HEADERS)


async def _home(_: Request) -> Response:
    return RedirectResponse("/console")


# Plain Starlette routes: pages are no part of the OpenAPI document.
routes: list[BaseRoute] = [
    Route("/", _home),
    Route("/console", _index),
    *(
        static_file(f"/console/{file.name}", file, HEADERS)
        for file in STATIC_DIR.iterdir()
        if file.name != "index.html"
    ),
]
