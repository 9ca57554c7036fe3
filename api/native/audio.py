"""POST /audio/verify: detects the service's watermark in a recording."""

from fastapi import Request
from pydantic import BaseModel, Field

from api.http.deps import PrincipalDep, SpeechDep
from api.http.routing import make_router
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form
from pipelines.audio.watermarking import WatermarkDetection

router = make_router(scope="stt")

LIMITS = UploadLimits(max_files=1)


class MarkedStretch(BaseModel):
    """Some seconds of speech."""

    start: float = Field(description="Seconds from the start of the file.")
    end: float
    likelihood: float = Field(description="That they are marked, 0 to 1.")


class Verification(BaseModel):
    """What was found."""

    watermarked: bool = Field(description="Whether any of it carries this service's watermark.")
    likelihood: float = Field(description="Of the likeliest stretch.")
    duration: float = Field(description="Seconds of audio.")
    stretches: list[MarkedStretch]


@router.post(
    "/audio/verify",
    tags=["speech to text"],
    summary="Look for the watermark in a recording",
    openapi_extra=form_schema("audio"),
)
async def verify(request: Request, principal: PrincipalDep, speech: SpeechDep) -> Verification:
    """Says yes to speech that services of this kind made and marked; 404 where marks are off.

    Who finds no mark knows nothing: speech of before, or of elsewhere, has none.
    """
    async with receive_form(request, LIMITS) as form:
        audio = form.file("audio")
        work = speech.watermarks.verify(speech.decoder, audio.path)
        return _to_verification(await while_connected(request.receive, work))


def _to_verification(found: WatermarkDetection) -> Verification:
    return Verification(
        watermarked=found.is_marked,
        likelihood=round(found.likelihood, 3),
        duration=round(found.duration_s, 3),
        stretches=[
            MarkedStretch(
                start=round(one.start_s, 2),
                end=round(one.end_s, 2),
                likelihood=round(one.likelihood, 3),
            )
            for one in found.segments
        ],
    )
