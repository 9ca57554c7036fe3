"""`/console`: the web console, plain files under `static/` that need no build step."""

import json
from html import escape
from pathlib import Path

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api.http.routing import services_of
from api.http.uploads import MAX_FILE_BYTES
from api.native.accounts import MAX_HISTORY_DAYS, MIN_PASSWORD_CHARACTERS
from api.native.jobs import CONFIG as JOBS
from api.native.pronunciations import MAX_NAMED
from api.native.speech import SCRIPT_LINES, TEXT_CHARACTERS
from configs.load import load_yaml
from configs.settings import BRAND
from db.webhooks import EVENT_KINDS
from pipelines.accounts.authentication import SCOPES
from pipelines.audio.decode.decoder import MAX_DURATION_S
from pipelines.correction.request import MAX_CHARACTERS
from pipelines.tts.dictionaries import VERSIONS
from pipelines.tts.session import BUFFER_CHARACTERS

STATIC_DIR = Path(__file__).resolve().parent / "static"

# Limits that the pages enforce before they send a request.
LIMITS = {
    "password_characters": MIN_PASSWORD_CHARACTERS,
    "history_days": MAX_HISTORY_DAYS,
    "file_characters": TEXT_CHARACTERS,
    "socket_characters": BUFFER_CHARACTERS,
    "correction_characters": MAX_CHARACTERS,
    "recording_mb": MAX_FILE_BYTES >> 20,
    "recording_minutes": MAX_DURATION_S / 60,
    "script_lines": SCRIPT_LINES,
    "dictionaries": MAX_NAMED,
    "dictionary_versions": VERSIONS,
    "job_hours": JOBS.most_hours,
    "job_characters": JOBS.most_characters,
    "document_mb": JOBS.document_mb,
    "part_mb": JOBS.part_mb,
    "most_parts": JOBS.most_parts,
}
PREVIEWS = load_yaml(dict[str, str], "preview_sentences")  # by language
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
    """Serves files with HEADERS, so that a reload shows an edited file."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


async def _index(request: Request) -> Response:
    """Returns the page, with the settings that it needs before a user signs in."""
    services = services_of(request)
    plans = services.platform.plans
    settings = services.infrastructure.settings
    about = {
        "brand": BRAND,
        "sign_up": settings.sign_up,
        "alone": services.platform.request_limits.can_be_owner(request),
        "sign_up_credit": plans.signup_credit,  # micro-USD
        "prices": plans.prices.model_dump(),  # micro-USD
        "recordings": services.voices.custom.rules.model_dump(),
        "consent": settings.require_consent,
        "operator": settings.operator_token is not None,
        "plans": [plan.id for plan in plans.plans],  # the operator has no API key to list them
        "limits": LIMITS,
        "previews": PREVIEWS,
        "events": EVENT_KINDS,
        "scopes": SCOPES,
    }
    page = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
    page = page.replace('data-about=""', f'data-about="{escape(json.dumps(about))}"')
    return HTMLResponse(page.replace("{brand}", BRAND), headers=HEADERS)


async def _home(_: Request) -> Response:
    return RedirectResponse("/console")


# Plain Starlette routes keep these pages out of the OpenAPI document.
routes: list[BaseRoute] = [
    Route("/", _home),
    Route("/console", _index),
    Route("/console/", _home),
    Mount("/console", GZipMiddleware(_Files(directory=STATIC_DIR))),
]
