"""ElevenLabs' `POST /v1/text-to-speech/{voice_id}`: whole or streamed, with times of letters."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.dialects.outputs import (
    AudioWriter,
    Letter,
    audio_answers,
    columns,
    letters_of,
    nothing_spoken,
    speak_whole,
    stream_speech,
)
from api.elevenlabs import options
from api.http.errors import to_api_error
from api.http.ignored_fields import name_unread
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import Base64Json, NdjsonStream, StreamedResponse, json_line
from api.native.speech import SpokenText
from pipelines.stt.formatting import separator_of
from pipelines.temporary_files import TemporaryFile
from pipelines.tts.session import EncodedChunk, SpeechStream
from telemetry.tracing import request_id

router = make_router("ElevenLabs' dialect", scope="tts", visitors=True, schemes=options.SCHEMES)

PATH = "/v1/text-to-speech/{voice_id}"
VoicePath = Annotated[str, Path(max_length=200, description="Voice id or name, also ElevenLabs'.")]
STREAMED = audio_answers(options.MEDIA_TYPES)


class ElevenLabsText(options.ElevenLabsVoicing):
    """The text and its voice settings. The voice determines the model."""

    free_cues: ClassVar[bool] = True

    text: SpokenText
    model_id: str | None = Field(default=None, max_length=200, description="Has no effect.")
    language_code: str | None = Field(default=None, max_length=35)


class TimedAudio(BaseModel):
    """Audio of the whole text, or of a part of it, with character times."""

    audio_base64: str
    alignment: dict[str, Any] | None = Field(description="Characters, with times in seconds.")
    normalized_alignment: dict[str, Any] | None = Field(description="Same as `alignment`.")


@dataclass(frozen=True, slots=True)
class OpenedSpeech:
    """A request whose voice was found."""

    stream: SpeechStream
    text: str
    media_type: str

    @property
    def space(self) -> str:
        """What stands between words of the voice's language."""
        return separator_of(self.stream.voice.language)


def opens(*, timings: bool = False, whole: bool = False) -> Any:
    """A dependency that gives an OpenedSpeech; `whole` is for an answer that is sent at its end."""

    async def open_speech(
        voice_id: VoicePath,
        body: ElevenLabsText,
        principal: PrincipalDep,
        speech: SpeechDep,
        operation: OperationDep,
        query: Annotated[options.OutputQuery, Query()],
    ) -> OpenedSpeech:
        workspace_id, synthesis = principal.workspace_id, speech.synthesis
        async with synthesis.events.recording(workspace_id, "tts.failed", voice_id=voice_id):
            directory, language = synthesis.pipeline.directory, body.language_code
            voice = await options.find_voice(voice_id, directory, workspace_id, language, body.text)
        stream = options.open_stream(
            voice=voice,
            style=body.style(timings=timings),
            output_format=query.output_format,
            synthesis=synthesis,
            workspace_id=workspace_id,
            operation=operation,
            whole=whole,
        )
        return OpenedSpeech(stream, body.text, query.media_type)

    return Depends(open_speech)


@router.post(f"{PATH}/stream", summary="Stream speech, for ElevenLabs' clients", **STREAMED)
@router.post(PATH, summary="Synthesise speech, for ElevenLabs' clients", **STREAMED)
async def speak(opened: Annotated[OpenedSpeech, opens()]) -> Response:
    """Sends the first audio before the second sentence is synthesised."""
    return await _stream(opened, AudioWriter(), opened.media_type)


@router.post(
    f"{PATH}/stream/with-timestamps",
    summary="Stream speech with character times, for ElevenLabs' clients",
    responses=NdjsonStream.documented(TimedAudio, "One JSON object per line"),
)
async def stream_with_timestamps(
    opened: Annotated[OpenedSpeech, opens(timings=True)],
) -> Response:
    """Times count from the start of the speech. On failure, the last line has `detail`."""
    return await _stream(opened, TimedWriter(opened.space))


@router.post(
    f"{PATH}/with-timestamps",
    summary="Synthesise speech with character times, for ElevenLabs' clients",
    response_model=TimedAudio,
)
async def speak_with_timestamps(
    opened: Annotated[OpenedSpeech, opens(timings=True, whole=True)],
) -> Response:
    """Returns the whole speech as one file. Synthesis stops if the client disconnects."""
    file = TemporaryFile()
    words = await speak_whole(opened.stream, opened.text, file.write)
    if not file.size:
        raise nothing_spoken()
    letters = letters_of(words, opened.space)
    timed = alignment(letters[: -len(opened.space) or None])
    answer = {"alignment": timed, "normalized_alignment": timed}
    whole = _with_headers(Base64Json("audio_base64", file, answer), opened.stream)
    name_unread(whole, opened.stream.unread)
    return whole


async def _stream(
    opened: OpenedSpeech, writer: AudioWriter, media_type: str | None = None
) -> Response:
    """Audio of `media_type`, or lines of JSON."""
    shape = StreamedResponse if media_type else NdjsonStream
    answer = await stream_speech(opened.stream, opened.text, writer, shape, media_type)
    return _with_headers(answer, opened.stream)


def _with_headers(answer: Response, stream: SpeechStream) -> Response:
    about = {"character-cost": str(stream.charged), "request-id": request_id.get() or ""}
    answer.headers.update(about)
    return answer


class TimedWriter(AudioWriter):
    """Writes lines of JSON."""

    def __init__(self, space: str) -> None:
        self._space = space

    def write(self, chunk: EncodedChunk) -> bytes:
        timed = alignment(letters_of(chunk.words or (), self._space))
        audio = b64encode(chunk.data).decode("ascii")
        line = {"audio_base64": audio, "alignment": timed, "normalized_alignment": timed}
        return json_line(line)

    def fail(self, error: Exception) -> bytes:
        return json_line(options.elevenlabs_error(to_api_error(error), "")[0])


def alignment(letters: Sequence[Letter]) -> dict[str, Any] | None:
    """As responses of HTTP have it; None without letters."""
    if not letters:
        return None
    return columns(
        letters,
        text="characters",
        start="character_start_times_seconds",
        end="character_end_times_seconds",
    )
