"""POST /audio/verify: detects the service's watermark in a recording."""

from functools import partial
from typing import Annotated

from fastapi import Request
from pydantic import Field

from api.http.bodies import Shown, rounded
from api.http.routing import PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import form_schema, receive_form

router = make_router("speech to text", scope="stt")


class MarkedStretch(Shown):
    """Some seconds of speech."""

    start: Annotated[float, rounded(2)] = Field(
        validation_alias="start_s", description="Seconds from the start of the file."
    )
    end: Annotated[float, rounded(2)] = Field(validation_alias="end_s")
    likelihood: Annotated[float, rounded(3)] = Field(description="That they are marked, 0 to 1.")


class Verification(Shown):
    """What was found."""

    watermarked: bool = Field(
        validation_alias="is_marked",
        description="Whether any of it carries this service's watermark.",
    )
    likelihood: Annotated[float, rounded(3)] = Field(description="Of the likeliest stretch.")
    duration: Annotated[float, rounded(3)] = Field(
        validation_alias="duration_s", description="Seconds of audio."
    )
    stretches: list[MarkedStretch] = Field(validation_alias="segments")


@router.post(
    "/audio/verify",
    summary="Look for the watermark in a recording",
    openapi_extra=form_schema("audio"),
)
async def verify(request: Request, principal: PrincipalDep, speech: SpeechDep) -> Verification:
    """Says yes to speech that services of this kind made and marked; 404 where marks are off.

    Who finds no mark knows nothing: speech of before, or of elsewhere, has none. It costs nothing,
    but is for workspaces with credit.
    """
    check = partial(speech.transcription.check_credit, principal.workspace_id)
    async with receive_form(request, before_large=check) as form:
        audio = form.file("audio")
        await check()
        work = speech.watermarks.verify(speech.decoder, audio.path, principal.workspace_id)
        return Verification.model_validate(await while_connected(request.receive, work))
