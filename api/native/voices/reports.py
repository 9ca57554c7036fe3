"""Reports of custom voices, as JSON and as a page."""

from typing import Annotated, Any, Literal

from fastapi import Header, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.http.deps import PrincipalDep, VoicesDep
from api.http.routing import make_router
from api.http.schemas import ErrorBody
from api.native.voices.report_page import HEADERS, report_page
from pipelines.voices.report import VoiceReport
from pipelines.voices.service import StoredReport
from pipelines.voices.voice_object import VoiceStatus

router = make_router(scope="voices")
pages = make_router(public=True)
routers = (router, pages)

_PAGE = {"text/html": {"schema": {"type": "string"}}}


class Recording(BaseModel):
    """One file that was sent, as it was measured before the voice was made."""

    seconds: float
    speech_share: float = Field(description="Of its length.")
    snr_db: float = Field(description="How much louder the speech is than what sounds between it.")
    level_dbfs: float = Field(description="Of the speech.")
    clipped_share: float = Field(description="Of the signal, at its own ceiling.")


class CustomVoiceReport(VoiceReport):
    """How a voice was made, and what came of it."""

    id: str
    name: str
    status: VoiceStatus
    reason: str | None = Field(description="Why it failed.")
    recordings: list[Recording] = Field(description="In the order in which they were sent.")
    page_url: str = Field(description="The same as a page, for who has the address; for an hour.")


@router.get(
    "/voices/{voice_id}/report",
    tags=["voices"],
    summary="How a custom voice was made",
    response_model=CustomVoiceReport,
    responses={200: {"description": "The report, as JSON or as a page", "content": _PAGE}},
)
async def read_report(
    voice_id: str,
    response: Response,
    principal: PrincipalDep,
    voices: VoicesDep,
    format: Annotated[
        Literal["json", "html"] | None, Query(description="Without it, `Accept` decides.")
    ] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Any:
    """Once the voice is ready or has failed. The page is HTML that needs nothing else."""
    kept = await voices.custom.report(principal, voice_id)
    if format == "html" or (format is None and _prefers_page(accept)):
        return _page(kept)
    response.headers["Vary"] = "Accept"
    return CustomVoiceReport(
        **kept.report.model_dump(),
        id=str(kept.voice.id),
        name=kept.voice.name,
        status=kept.voice.status,
        reason=kept.voice.reason,
        recordings=[Recording.model_validate(one, from_attributes=True) for one in kept.samples],
        page_url=voices.custom.report_address(kept.voice),
    )


@pages.get(
    "/reports/{file_id}",
    tags=["voices"],
    summary="The page of a report",
    response_class=Response,
    responses={
        200: {"description": "The page", "content": _PAGE},
        404: {"model": ErrorBody, "description": "The address is wrong or has expired"},
    },
)
async def show_report(
    file_id: str,
    voices: VoicesDep,
    expires: Annotated[str, Query(max_length=20)] = "",
    signature: Annotated[str, Query(max_length=100)] = "",
) -> HTMLResponse:
    """`page_url` of a report leads here; it needs no key and ends after an hour."""
    return _page(await voices.custom.signed_report(file_id, expires, signature))


def _page(kept: StoredReport) -> HTMLResponse:
    return HTMLResponse(report_page(kept), headers={**HEADERS, "Vary": "Accept"})


def _prefers_page(accept: str) -> bool:
    """Whether HTML is named with more weight than JSON, as browsers do."""
    weights: dict[str, float] = {}
    for item in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        weight = next((one[2:] for one in parameters if one.startswith("q=")), "1")
        try:
            weights[kind] = float(weight)
        except ValueError:
            weights[kind] = 0.0
    of_json = max(weights.get(kind, 0.0) for kind in ("application/json", "application/*", "*/*"))
    return weights.get("text/html", 0.0) > of_json
