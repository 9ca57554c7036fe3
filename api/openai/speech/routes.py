"""Text to speech for OpenAI's clients."""

from typing import Any

from fastapi import Request
from starlette.responses import Response

from api.http.deps import OperationDep, PrincipalDep, SpeechDep
from api.http.routing import make_router
from api.http.sse import EventStream
from api.http.streaming import StreamedResponse, while_connected
from api.native.speech.paid_speech import PaidSynthesis
from api.openai.names import OpenAINames
from api.openai.speech.body import OpenAISpeechBody
from api.openai.speech.stream import MEDIA_TYPES, audio_bytes, audio_events
from pipelines.billing.billing import IdempotentOperation
from pipelines.tts.pipeline import SpeechRequest
from pipelines.webhooks.failure_events import FailureEvents

router = make_router(scope="tts")

_BINARY = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file in pieces, or its pieces as server-sent events",
        "content": {
            "text/event-stream": {"schema": {"type": "string"}},
            **dict.fromkeys(MEDIA_TYPES.values(), _BINARY),
        },
    }
}


@router.post(
    "/openai/v1/audio/speech",
    tags=["text to speech"],
    summary="Speak a text, for OpenAI's clients",
    response_class=Response,
    responses=_ANSWERS,
)
async def create_speech(
    request: Request,
    body: OpenAISpeechBody,
    principal: PrincipalDep,
    speech: SpeechDep,
    operation: OperationDep,
) -> Response:
    """The first audio comes before the second sentence is spoken.

    A client that leaves stops the work, and pays for what was spoken. A failure after the first
    audio cuts the connection, or is an event.
    """
    work = _begin(
        body,
        speech.synthesis,
        speech.openai,
        speech.failures,
        principal.workspace_id,
        operation,
    )
    return await while_connected(request.receive, work)


async def _begin(
    body: OpenAISpeechBody,
    synthesis: PaidSynthesis,
    names: OpenAINames,
    failures: FailureEvents,
    workspace_id: int,
    operation: IdempotentOperation | None,
) -> Response:
    """The answer, with its first audio already made."""
    async with failures.recording(workspace_id, "tts.failed", voice_id=None):
        tier = await names.speech_tier(body.model)
        voice_id = await names.choose_voice(body.voice, tier, body.input, workspace_id)
    asked = SpeechRequest(
        text=body.input, voice_id=voice_id, speed=body.speed, workspace_id=workspace_id
    )
    plan, first, rest = await synthesis.begin_stream(asked, workspace_id, operation)
    answer: StreamedResponse
    if body.stream_format == "sse":
        events = audio_events(first, rest, body.response_format, len(body.input))
        answer = EventStream(events, rest)
    else:
        pieces = audio_bytes(first, rest, body.response_format)
        answer = StreamedResponse(pieces, rest, MEDIA_TYPES[body.response_format])
    answer.headers["openai-model"] = plan.voice.model.id  # whatever name the client used
    return answer
