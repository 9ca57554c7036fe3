"""Text to files and streams of speech."""

from base64 import b64encode
from typing import Any

from anyio import to_thread
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from api.http.deps import OperationDep, PrincipalDep, SpeechDep
from api.http.routing import make_router
from api.http.streaming import while_connected
from api.native.speech.ndjson import SpeechLines, only_error, speech_lines, word_list
from api.native.speech.paid_speech import PaidSynthesis
from api.native.speech.schemas import StreamBody, StreamLine, SynthesisBody, SynthesisResult
from models.errors import UnknownVoice
from pipelines.audio.encode.files import EncodedAudio, OutputFormat, encode
from pipelines.billing.billing import IdempotentOperation
from pipelines.errors import VoiceNotFound
from pipelines.tts.pipeline import Speech

router = make_router(scope="tts")

STREAM_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": StreamLine,
        "description": "One JSON object a line: `chunk` many times, then `complete` or `error`",
        "content": {SpeechLines.media_type: {}},
    }
}


@router.post(
    "/tts-synthesize",
    tags=["text to speech"],
    summary="Speak a text",
    response_model=SynthesisResult,
)
async def synthesize(
    request: Request,
    body: SynthesisBody,
    principal: PrincipalDep,
    speech: SpeechDep,
    operation: OperationDep,
) -> Response:
    """The whole text as one file. A client that leaves stops the work, and pays nothing."""
    work = _speak(body, speech.synthesis, principal.workspace_id, operation)
    return await while_connected(request.receive, work)


@router.post(
    "/tts-stream",
    tags=["text to speech"],
    summary="Speak a text piece by piece",
    response_class=Response,
    status_code=200,
    responses=STREAM_ANSWER,
)
async def stream(
    request: Request,
    body: StreamBody,
    principal: PrincipalDep,
    speech: SpeechDep,
    operation: OperationDep,
) -> Response:
    """Lines of JSON; the audio of the first comes before the second sentence is spoken.

    The audio of all lines joined is one file. A client that leaves stops the work, and pays for
    what was spoken.
    """
    # What fails before the first sound, but for an unknown voice, still has a status of its own.
    work = _begin(body, speech.synthesis, principal.workspace_id, operation)
    return await while_connected(request.receive, work)


async def _speak(
    body: SynthesisBody,
    synthesis: PaidSynthesis,
    workspace_id: int,
    operation: IdempotentOperation | None,
) -> Response:
    plan = await synthesis.plan(body.to_request(workspace_id), workspace_id)
    voice_id = plan.voice.voice.voice_id
    async with await synthesis.pay(workspace_id, operation, body.text, voice_id) as paid:
        speech = await synthesis.pipeline.speak(plan)
        file, answer = await to_thread.run_sync(
            _answer, speech, body.output_format, body.timestamps
        )
        await paid.done(file)
    return answer


def _answer(
    speech: Speech, output_format: OutputFormat, timestamps: bool
) -> tuple[EncodedAudio, Response]:
    """Encodes and renders; blocking. Not through the response model: base64 needs no check."""
    file = encode(speech.audio, output_format)
    answer: dict[str, Any] = {
        "success": True,
        "message": "Speech synthesized successfully",
        "audio_base64": b64encode(file.data).decode("ascii"),
        "sample_rate": file.sample_rate,
        "duration_seconds": round(file.duration_s, 6),
        "encoding": file.encoding,
        "output_format": file.output_format,
    }
    if timestamps:
        answer["words"] = word_list(list(speech.words))
    return file, JSONResponse(answer)


async def _begin(
    body: StreamBody,
    synthesis: PaidSynthesis,
    workspace_id: int,
    operation: IdempotentOperation | None,
) -> Response:
    """The answer, with its first audio already made."""
    try:
        asked = body.to_request(workspace_id)
        _, first, chunks = await synthesis.begin_stream(asked, workspace_id, operation)
    except (VoiceNotFound, UnknownVoice) as error:
        return SpeechLines(only_error(error))
    lines = speech_lines(first, chunks, body.output_format, timestamps=body.timestamps)
    return SpeechLines(lines, chunks)
