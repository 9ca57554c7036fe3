"""ElevenLabs' voice changer: the words of a recording, spoken again by another voice."""

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from fastapi import Request
from pydantic import BaseModel, Field, Json
from starlette.responses import Response

from api.callers import CallerDep
from api.dialects.outputs import AudioWriter
from api.elevenlabs import options
from api.elevenlabs.recordings import FileFormat, uploaded_recording, with_words
from api.elevenlabs.speech import STREAMED, OpenedSpeech, VoicePath
from api.http.routing import make_router
from api.http.streaming import while_connected
from api.http.uploads import form_schema, receive_form
from models.stt.base import Word
from models.stt.options import RecognitionOptions
from pipelines.stt.formatting import separator_of
from pipelines.tts.reading import LONGEST_BREAK_S

router = make_router(
    "ElevenLabs' dialect", scope="tts", further=("stt",), visitors=True, schemes=options.SCHEMES
)

LEAST_PAUSE_S = 0.5  # the voice makes shorter pauses itself
PATHS = ("/v1/voice-changer/{voice_id}", "/v1/speech-to-speech/{voice_id}")


class ChangerFields(BaseModel):
    """The form fields beside the recording."""

    voice_settings: Json[options.VoiceSettings] | None = Field(
        default=None, description="Voice settings as a JSON object."
    )
    file_format: FileFormat = "other"


DOCUMENTED: dict[str, Any] = STREAMED | {"openapi_extra": form_schema("audio", ChangerFields)}


@router.post(f"{PATHS[0]}/stream", summary="Stream a recording in another voice", **DOCUMENTED)
@router.post(f"{PATHS[1]}/stream", summary="Stream a recording in another voice", **DOCUMENTED)
@router.post(PATHS[0], summary="Speak a recording in another voice", **DOCUMENTED)
@router.post(PATHS[1], summary="Speak a recording in another voice", **DOCUMENTED)
async def change_voice(
    voice_id: VoicePath, request: Request, caller: CallerDep, query: options.Output
) -> Response:
    """Recognises the words of `audio`, and speaks them with the pauses between them. Intonation and
    tempo are those of the voice. Needs the scopes `stt` and `tts`; recognition and speech are each
    charged."""
    async with receive_form(request, before_large=caller.check_credit) as form:
        fields = form.read(ChangerFields)
        # An unknown voice is refused before the recognition.
        await options.find_voice(voice_id, caller)
        path = await uploaded_recording(form, "audio", fields.file_format)
        recognition = RecognitionOptions(words=True)
        transcript = await caller.transcribe(request, path, recognition, with_words)
    voicing = options.ElevenLabsVoicing(voice_settings=fields.voice_settings)
    voice = await options.find_voice(voice_id, caller, transcript.language)
    stored = await options.stored_settings(caller, voice_id, voice)
    stream = query.open_stream(caller, voice, voicing.style(timings=False, stored=stored))
    text = with_pauses(transcript.words, separator_of(transcript.language))
    record = query.record(caller, stream, source="STS")
    opened = OpenedSpeech(stream, text, query.media_type, record)
    return await while_connected(request.receive, opened.streamed(AudioWriter(), opened.media_type))


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
