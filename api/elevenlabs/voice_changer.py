"""ElevenLabs' voice changer: the words of a recording, spoken again by another voice."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal
from xml.sax.saxutils import escape

from fastapi import Query, Request
from pydantic import BaseModel, Field, Json
from starlette.responses import Response

from api.dialects.outputs import AudioWriter
from api.elevenlabs import options
from api.elevenlabs.recordings import RAW_HZ, with_words
from api.elevenlabs.speech import STREAMED, OpenedSpeech, VoicePath, stream_opened
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form, validated
from models.stt.base import Word
from models.stt.options import RecognitionOptions
from pipelines.audio.decode.stream import add_wav_header
from pipelines.stt.formatting import separator_of
from pipelines.tts.reading import LONGEST_BREAK_S

router = make_router(
    "ElevenLabs' dialect",
    scope="tts",
    further=("stt",),
    visitors=True,
    schemes=options.SCHEMES,
)

LEAST_PAUSE_S = 0.5  # shorter pauses are left to the voice
PATHS = ("/v1/voice-changer/{voice_id}", "/v1/speech-to-speech/{voice_id}")


class ChangerFields(BaseModel):
    """The form fields beside the recording."""

    voice_settings: Json[options.VoiceSettings] | None = Field(
        default=None, description="Voice settings as a JSON object."
    )
    file_format: Literal["pcm_s16le_16", "other"] = "other"


DOCUMENTED: dict[str, Any] = STREAMED | {"openapi_extra": form_schema("audio", ChangerFields)}


@router.post(f"{PATHS[0]}/stream", summary="Stream a recording in another voice", **DOCUMENTED)
@router.post(f"{PATHS[1]}/stream", summary="Stream a recording in another voice", **DOCUMENTED)
@router.post(PATHS[0], summary="Speak a recording in another voice", **DOCUMENTED)
@router.post(PATHS[1], summary="Speak a recording in another voice", **DOCUMENTED)
async def change_voice(
    voice_id: VoicePath,
    request: Request,
    principal: PrincipalDep,
    speech: SpeechDep,
    operation: OperationDep,
    query: Annotated[options.OutputQuery, Query()],
) -> Response:
    """Recognises the words of `audio`, and speaks them with the pauses between them. Intonation and
    tempo are those of the voice. Needs the scopes `stt` and `tts`; recognition and speech are each
    charged."""
    owner = principal.workspace_id
    synthesis = speech.synthesis
    find_voice = partial(options.find_voice, voice_id, synthesis.pipeline.directory, owner)
    check = partial(speech.transcription.check_credit, owner, operation)
    async with receive_form(request, UploadLimits(), check) as form:
        fields = validated(ChangerFields, form.fields)
        await find_voice()  # an unknown voice is refused before the recognition
        path = form.file("audio").path
        if fields.file_format == "pcm_s16le_16":
            await asyncio.to_thread(add_wav_header, path, "linear", RAW_HZ)
        work = speech.transcription.transcribe(
            owner, operation, path, RecognitionOptions(words=True), with_words
        )
        transcript = await while_connected(request.receive, work)
    voicing = options.ElevenLabsVoicing(voice_settings=fields.voice_settings)
    voice = await find_voice(language=transcript.language)
    stored = await options.stored_settings(speech.voice_settings, owner, voice_id, voice)
    stream = options.open_stream(
        voice=voice,
        style=voicing.style(timings=False, stored=stored),
        output_format=query.output_format,
        synthesis=synthesis,
        workspace_id=owner,
        operation=operation,
    )
    text = with_pauses(transcript.words, separator_of(transcript.language))
    record = query.record(speech.history, principal, stream, source="STS")
    opened = OpenedSpeech(stream, text, query.media_type, record)
    answer = stream_opened(opened, AudioWriter(), opened.media_type)
    return await while_connected(request.receive, answer)


def with_pauses(words: Sequence[Word], separator: str) -> str:
    """Returns the words as SSML, with breaks as long as the pauses before them."""
    parts: list[str] = []
    end_s = 0.0
    for word in words:
        pause_s = min(word.start - end_s, LONGEST_BREAK_S)
        if pause_s >= LEAST_PAUSE_S:
            parts.append(f'<break time="{pause_s:.2f}s"/>')
        parts.append(escape(word.word))
        end_s = word.end
    return f"<speak>{separator.join(parts)}</speak>"
