"""ElevenLabs' `POST /v1/text-to-speech/{voice_id}`: whole or streamed, with character times."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.callers import CallerDep
from api.dialects import outputs
from api.elevenlabs import options
from api.http.errors import to_api_error
from api.http.routing import make_router, name_gaps
from api.http.streaming import Base64Json, NdjsonStream, StreamedResponse, json_line
from api.native.speech import SpokenText
from pipelines.stt.formatting import separator_of
from pipelines.tts.history import SpeechRecord
from pipelines.tts.session import EncodedChunk, SpeechStream
from pipelines.tts.shaping import TimedWord
from telemetry.tracing import request_id

router = make_router("ElevenLabs' dialect", scope="tts", visitors=True, schemes=options.SCHEMES)

PATH = "/v1/text-to-speech/{voice_id}"
VoicePath = Annotated[
    str, Path(max_length=200, description="Voice id or name, or the id of an ElevenLabs voice.")
]
STREAMED = outputs.audio_answers(options.MEDIA_TYPES)


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
    """A request with its text, and the stream that will speak it."""

    stream: SpeechStream
    text: str
    media_type: str
    record: SpeechRecord | None  # for the history

    @property
    def separator(self) -> str:
        """The text between words of the voice's language: a space or nothing."""
        return separator_of(self.stream.voice.language)

    async def streamed(
        self, writer: outputs.AudioWriter, media_type: str | None = None
    ) -> Response:
        """Streams audio of `media_type`; JSON lines if that is None."""
        response_type = StreamedResponse if media_type else NdjsonStream
        if self.record is not None:
            writer = RecordingWriter(writer, self.record, self.text)
        answer = await outputs.stream_speech(
            self.stream, self.text, writer, response_type, media_type
        )
        return self._with_headers(answer)

    async def whole(self, writer: "TimedWriter") -> Response:
        """Returns the whole speech, with the times that `writer.timing` derives from its words."""
        record = self.record
        file, words = await outputs.speak_whole(
            self.stream,
            self.text,
            is_wav=self.media_type == "audio/wav",
            copy_to=None if record is None else record.add,
        )
        if record is not None:
            record.keep(self.text)
        answer = Base64Json("audio_base64", file, writer.timing(words, is_whole=True))
        name_gaps(answer, self.stream)
        return self._with_headers(answer)

    def _with_headers(self, answer: Response) -> Response:
        answer.headers["character-cost"] = str(self.stream.charged)
        answer.headers["request-id"] = request_id.get() or ""
        return answer


def opens(*, timings: bool = False, whole: bool = False) -> Any:
    """Returns a dependency that opens speech; with `whole`, it is sent only when complete."""

    async def open_speech(
        voice_id: VoicePath, body: ElevenLabsText, caller: CallerDep, query: options.Output
    ) -> OpenedSpeech:
        async with caller.recording_failures(voice_id):
            voice = await options.find_voice(voice_id, caller, body.language_code, body.text)
        stored = await options.stored_settings(caller, voice_id, voice)
        style = body.style(timings=timings, stored=stored)
        stream = query.open_stream(caller, voice, style, whole=whole)
        return OpenedSpeech(stream, body.text, query.media_type, query.record(caller, stream))

    return Depends(open_speech)


@router.post(f"{PATH}/stream", summary="Stream speech, for ElevenLabs' clients", **STREAMED)
@router.post(PATH, summary="Synthesise speech, for ElevenLabs' clients", **STREAMED)
async def speak(opened: Annotated[OpenedSpeech, opens()]) -> Response:
    """Sends the first audio before the second sentence is synthesised."""
    return await opened.streamed(outputs.AudioWriter(), opened.media_type)


@router.post(
    f"{PATH}/stream/with-timestamps",
    summary="Stream speech with character times, for ElevenLabs' clients",
    responses=NdjsonStream.documented(TimedAudio, "One JSON object per line"),
)
async def stream_with_timestamps(opened: Annotated[OpenedSpeech, opens(timings=True)]) -> Response:
    """Streams JSON lines. Times count from the start of the speech. On failure, the last line has
    `detail`."""
    return await opened.streamed(TimedWriter(opened.separator))


@router.post(
    f"{PATH}/with-timestamps",
    summary="Synthesise speech with character times, for ElevenLabs' clients",
    response_model=TimedAudio,
)
async def speak_with_timestamps(
    opened: Annotated[OpenedSpeech, opens(timings=True, whole=True)],
) -> Response:
    """Returns the whole speech as one file. Synthesis stops if the client disconnects."""
    return await opened.whole(TimedWriter(opened.separator))


class RecordingWriter(outputs.AudioWriter):
    """Writes speech with another writer, and copies its audio for the history."""

    def __init__(self, writer: outputs.AudioWriter, record: SpeechRecord, text: str) -> None:
        self._writer = writer
        self._record = record
        self._text = text

    def write(self, chunk: EncodedChunk) -> bytes:
        self._record.add(chunk.data)
        return self._writer.write(chunk)

    def finish(self) -> list[bytes]:
        self._record.keep(self._text)
        return self._writer.finish()

    def fail(self, error: Exception) -> bytes:
        return self._writer.fail(error)


class TimedWriter(outputs.AudioWriter):
    """Writes JSON lines with audio and character times."""

    def __init__(self, separator: str) -> None:
        self._separator = separator

    def write(self, chunk: EncodedChunk) -> bytes:
        audio = b64encode(chunk.data).decode("ascii")
        return json_line({"audio_base64": audio, **self.timing(chunk.words or ())})

    def timing(self, words: Sequence[TimedWord], *, is_whole: bool = False) -> dict[str, Any]:
        """Returns the fields with the times of letters; `is_whole` if no more words follow."""
        letters = outputs.letters_of(words, self._separator)
        if is_whole:
            letters = letters[: -len(self._separator) or None]
        aligned = None
        if letters:
            aligned = outputs.columns(
                letters,
                text="characters",
                start="character_start_times_seconds",
                end="character_end_times_seconds",
            )
        return {"alignment": aligned, "normalized_alignment": aligned}

    def fail(self, error: Exception) -> bytes:
        return json_line(options.elevenlabs_error(to_api_error(error), "")[0])
