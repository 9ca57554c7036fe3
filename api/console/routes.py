"""The console: a page on which a person speaks, listens, chats, makes API keys and sees the
account."""

from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

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


def routes() -> list[BaseRoute]:
    """Plain Starlette routes: pages are no part of the OpenAPI."""
    page = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
    page = page.replace('<html lang="en">', f'<html lang="en" data-brand="{BRAND}">')

    async def index(_: Request) -> Response:
        return HTMLResponse(page, headers=HEADERS)

    async def home(_: Request) -> Response:
        return RedirectResponse("/console")

    return [
        Route("/", home),
        Route("/console", index),
        _file("console.js", "text/javascript"),
        _file("voices.js", "text/javascript"),
        _file("live.js", "text/javascript"),
        _file("account.js", "text/javascript"),
        _file("microphone.js", "text/javascript"),
        _file("console.css", "text/css"),
    ]


def _file(name: str, media_type: Literal["text/javascript", "text/css"]) -> Route:
    content = (STATIC_DIR / name).read_bytes()

    async def serve(_: Request) -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return Route(f"/console/{name}", serve)
