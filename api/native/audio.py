"""POST /audio/verify: detects the service's watermark in a recording."""

from functools import partial
from typing import Annotated

from fastapi import Request
from pydantic import Field

from api.http.bodies import Shown, rounded
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import form_schema, receive_form

router = make_router("speech to text", scope="stt")


class MarkedStretch(Shown):
    """A segment of the recording."""

    start: Annotated[float, rounded(2)] = Field(
        validation_alias="start_s", description="Seconds from the start of the file."
    )
    end: Annotated[float, rounded(2)] = Field(validation_alias="end_s")
    likelihood: Annotated[float, rounded(3)] = Field(description="Of a watermark, 0 to 1.")


class Verification(Shown):
    """The result of the watermark detection."""

    watermarked: bool = Field(
        validation_alias="is_marked",
        description="Whether a segment carries this service's watermark.",
    )
    likelihood: Annotated[float, rounded(3)] = Field(description="The highest of all `stretches`.")
    duration: Annotated[float, rounded(3)] = Field(
        validation_alias="duration_s", description="Seconds of audio."
    )
    stretches: list[MarkedStretch] = Field(validation_alias="segments")


@router.post(
    "/audio/verify",
    summary="Detect the watermark in a recording",
    openapi_extra=form_schema("audio"),
)
async def verify(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Verification:
    """Detects speech that instances of this service watermarked; 404 if WATERMARK is off.

    A negative result proves nothing: earlier speech, or that of other services, has no watermark.
    It costs as much as a transcription.
    """
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    async with receive_form(request, before_large=check) as form:
        audio = form.file("audio")
        work = speech.transcription.verify(
            principal.workspace_id, operation, audio.path, speech.decoder, speech.watermarks
        )
        return Verification.model_validate(await while_connected(request.receive, work))
