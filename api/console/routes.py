"""The web console: plain files under `static/`, which browsers run as they are."""

import json
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api.http.routing import services_of
from configs.settings import BRAND
from db.webhooks import EVENT_KINDS
from pipelines.accounts.authentication import SCOPES

STATIC_DIR = Path(__file__).resolve().parent / "static"

HEADERS = {
    # Only our own files run, and no other site may frame a page that holds a key.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; media-src 'self' data: blob:; "
        "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """Reads each file when it is asked for, so that an edited one is there after a reload."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


async def _index(request: Request) -> Response:
    """The page, with what it must know before a user has signed in."""
    services = services_of(request)
    plans, settings = services.platform.plans, services.infrastructure.settings
    about = {
        "brand": BRAND,
        "sign_up": settings.sign_up,
        "sign_up_credit": plans.signup_credit,  # these and the prices are micro-USD
        "prices": plans.prices.model_dump(),
        "recordings": services.voices.custom.rules.model_dump(),
        "consent": settings.require_consent,
        "operator": settings.operator_token is not None,
        "plans": [plan.id for plan in plans.plans],  # an operator has no key to list them
        "events": EVENT_KINDS,
        "scopes": SCOPES,
    }
    page = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
    page = page.replace('data-about=""', f'data-about="{escape(json.dumps(about))}"')
    return HTMLResponse(page.replace("{brand}", BRAND), headers=HEADERS)


async def _home(_: Request) -> Response:
    return RedirectResponse("/console")


# Plain Starlette routes: pages are no part of the OpenAPI document.
routes: list[BaseRoute] = [
    Route("/", _home),
    Route("/console", _index),
    Mount("/console", _Files(directory=STATIC_DIR)),
]
