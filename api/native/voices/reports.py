"""Reports of custom voices: JSON, or a page of HTML and SVG without scripts or external files."""

import base64
import hashlib
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Header, Query
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import Field
from starlette.responses import Response

from api.http.bodies import Shown
from api.http.routing import PrincipalDep, VoicesDep, make_router
from configs.settings import BRAND
from pipelines.text.language_names import name_language
from pipelines.voices.report import VoiceReport
from pipelines.voices.service import StoredReport
from pipelines.voices.voice_object import VoiceStatus

router = make_router("voices", scope="voices")
pages = make_router("voices", public=True)
routers = (router, pages)

FOLDER = Path(__file__).resolve().parent / "report_static"

_STYLE = (FOLDER / "report.css").read_text(encoding="utf-8")
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; media-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the page's URL is its credential
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}

MAX_ACCEPT = 500  # characters read of the header; browsers send fewer
_ACCEPTED = re.compile(r"([\w*]+/[\w*.+-]+)(?:[^,]*?;\s*q=([^,;]*))?")
_PAGE = {"text/html": {"schema": {"type": "string"}}}


class Recording(Shown):
    """Measurements of one uploaded file, made before the build."""

    seconds: float
    speech_share: float = Field(description="Share of the duration that is speech.")
    snr_db: float = Field(description="Signal-to-noise ratio of the speech.")
    level_dbfs: float = Field(description="Speech level, in dBFS.")
    clipped_share: float = Field(description="Share of samples at the peak.")


class CustomVoiceReport(VoiceReport):
    """How the voice was built, and its measured quality."""

    id: str
    name: str
    status: VoiceStatus
    reason: str | None = Field(description="Why the build failed.")
    recordings: list[Recording] = Field(description="Uploaded files, in order.")
    page_url: str = Field(description="Report as a web page; needs no key, expires in an hour.")


@router.get(
    "/voices/{voice_id}/report",
    summary="Get the report of a custom voice",
    response_model=CustomVoiceReport,
    responses={200: {"description": "The report, as JSON or as a web page", "content": _PAGE}},
)
async def read_report(
    voice_id: str,
    response: Response,
    principal: PrincipalDep,
    voices: VoicesDep,
    format: Annotated[
        Literal["json", "html"] | None, Query(description="Default: the `Accept` header decides.")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Any:
    """Available once the voice is ready or has failed. The web page is self-contained."""
    stored = await voices.custom.report(principal, voice_id)
    if format == "html" or (format is None and _prefers_page(accept)):
        return _page(stored)
    response.headers["Vary"] = "Accept"
    return CustomVoiceReport(
        **stored.report.model_dump(),
        id=str(stored.voice.id),
        name=stored.voice.name,
        status=stored.voice.status,
        reason=stored.voice.reason,
        recordings=[Recording.model_validate(sample) for sample in stored.samples],
        page_url=voices.custom.report_address(stored.voice),
    )


@pages.get(
    "/reports/{file_id}",
    summary="Show a report as a web page",
    response_class=Response,
    responses={200: {"description": "The page", "content": _PAGE}},
)
async def show_report(
    file_id: str,
    voices: VoicesDep,
    expires: Annotated[str, Query(max_length=20)] = "",
    signature: Annotated[str, Query(max_length=100)] = "",
) -> HTMLResponse:
    """Serves the `page_url` of a report. It needs no API key and expires after an hour."""
    return _page(await voices.custom.signed_report(file_id, expires, signature))


def _page(stored: StoredReport) -> HTMLResponse:
    """Renders the page; takes a few milliseconds."""
    page = _template.render(
        brand=BRAND,
        style=Markup(_STYLE),
        voice=stored.voice,
        language_name=name_language(stored.voice.language).name,
        report=stored.report,
        recordings=stored.samples,
    )
    return HTMLResponse(page, headers={**HEADERS, "Vary": "Accept"})


def _prefers_page(accept: str) -> bool:
    """Whether `Accept` prefers HTML to JSON, as that of browsers does."""
    accepted = _ACCEPTED.findall(accept[:MAX_ACCEPT].lower())
    weights = {kind: float(q or 1) for kind, q in accepted if re.fullmatch(r"(\d*\.?\d+)?", q)}
    json_types = ("application/json", "application/*", "*/*")
    return weights.get("text/html", 0.0) > max(weights.get(kind, 0.0) for kind in json_types)


_environment = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters["log10"] = math.log10
_template = _environment.get_template("page.html")
