"""Text to speech for OpenAI's clients: the audio as bytes, or as events with base64."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from api.callers import CallerDep
from api.dialects.outputs import BytesWriter, audio_answers
from api.http.bodies import RequestModel
from api.http.routing import make_router, name_gaps
from api.http.streaming import (
    EventStream,
    StreamedResponse,
    encode_frames,
    error_frame,
    event_frame,
)
from api.native.pronunciations import DictionaryNames
from api.native.speech import SpokenText
from pipelines.audio.encode.encoder import CODECS, AudioEncoder
from pipelines.audio.encode.formats import open_encoder
from pipelines.tts.reading import SpeechRequest, parse
from pipelines.tts.shaping import SpokenChunk

router = make_router("text to speech", scope="tts", visitors=True)

SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

PCM_RATE = 24_000  # Hz; voices of other sample rates are resampled
MEDIA_TYPES = {
    "opus": "audio/ogg",
    "pcm": "audio/pcm",
    **{name: CODECS[name].media_type for name in ("mp3", "aac", "flac", "wav")},
}
INSTRUCTIONS_CHARACTERS = 4096


class VoiceReference(RequestModel):
    """A voice, by id."""

    id: str


def _id_of(value: Any) -> Any:
    """Takes the id out of a `VoiceReference`, since names and ids are looked up in the same way."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


VoiceName = Annotated[
    str,
    Field(min_length=1, max_length=200),
    BeforeValidator(_id_of, json_schema_input_type=str | VoiceReference),
]


class OpenAISpeechBody(RequestModel):
    """The text to synthesise, with speech options."""

    model: str | None = Field(
        default=None, max_length=200, description="`tts-1`, `gpt-4o-mini-tts` or a model id."
    )
    input: SpokenText
    voice: VoiceName | None = Field(
        default=None,
        description="Name of an OpenAI voice, or name or id of a voice of this service. Default: "
        "chosen by the language of the text.",
    )
    response_format: SpeechFormat = Field(
        default="mp3", description="`opus` uses Ogg; `pcm` is 16-bit little-endian mono at 24 kHz."
    )
    speed: float = Field(default=1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = Field(
        default="audio", description="`audio` sends bytes, `sse` events with base64 audio."
    )
    instructions: str | None = Field(
        default=None, max_length=INSTRUCTIONS_CHARACTERS, description="Has no effect."
    )
    pronunciations: DictionaryNames = ()


def open_speech_encoder(response_format: SpeechFormat, sample_rate: int) -> AudioEncoder:
    """Opens the encoder of a stream; `sample_rate` (Hz) is the sample rate of the speech."""
    if response_format == "pcm":
        return open_encoder("pcm", PCM_RATE)
    return open_encoder("ogg" if response_format == "opus" else response_format, sample_rate)


class EventWriter(BytesWriter):
    """Writes encoded audio as server-sent events."""

    def __init__(self, response_format: SpeechFormat, characters: int, voice: str) -> None:
        super().__init__(partial(open_speech_encoder, response_format))
        self._characters = characters
        self._voice = voice
        self._duration_s = 0.0

    def write(self, chunk: SpokenChunk) -> bytes:
        self._duration_s += chunk.audio.duration_s
        return _delta(super().write(chunk))

    def finish(self) -> list[bytes]:
        characters = self._characters  # in place of tokens, since speech is billed by characters
        usage = {"input_tokens": characters, "output_tokens": 0, "total_tokens": characters}
        done = {
            "type": "speech.audio.done",
            "usage": usage,
            "voice": self._voice,
            "duration_seconds": round(self._duration_s, 6),
        }
        return [*map(_delta, super().finish()), event_frame(done)]

    def fail(self, error: Exception) -> bytes:
        return error_frame(error)


DOCUMENTED = audio_answers(
    MEDIA_TYPES.values(), "The audio, streamed as bytes or as server-sent events"
)
# No schema: documentation tools would show it as the schema of an event.
DOCUMENTED["responses"][200]["content"]["text/event-stream"] = {}


@router.post("/openai/v1/audio/speech", summary="Stream speech, for OpenAI's clients", **DOCUMENTED)
async def create_speech(body: OpenAISpeechBody, caller: CallerDep) -> Response:
    """Sends the first audio before the second sentence is synthesised.

    If the client disconnects, synthesis stops, and the speech made so far is charged.
    After a failure in mid-stream, the connection closes; with `sse` an error event comes first.
    """
    workspace_id = caller.workspace_id
    names = caller.speech.openai
    synthesis = caller.speech.synthesis
    tokens, language = parse(SpeechRequest(body.input))
    async with caller.recording_failures(None):
        tier = await names.speech_tier(body.model)
        text = "".join(token.text for token in tokens)
        voice = await names.choose_voice(
            body.voice, tier, workspace_id, language=language or None, text=text
        )
    request = SpeechRequest(
        text=body.input,
        voice_id=voice.id if voice else None,
        is_makeshift=voice is not None and voice.is_makeshift,
        expected=voice.language if voice and voice.is_stand_in else None,
        speed=body.speed,
        workspace_id=workspace_id,
        pronunciations=body.pronunciations,
    )
    plan, first, rest = await synthesis.start_stream(request, workspace_id, caller.operation)
    answer: StreamedResponse
    if body.stream_format == "sse":
        writer = EventWriter(body.response_format, synthesis.characters(plan), plan.voice.info.name)
        answer = EventStream(encode_frames(first, rest, writer), rest)
    else:
        bytes_writer = BytesWriter(partial(open_speech_encoder, body.response_format))
        frames = encode_frames(first, rest, bytes_writer)
        answer = StreamedResponse(frames, rest, MEDIA_TYPES[body.response_format])
    answer.headers["openai-model"] = plan.voice.model.id  # not the name that the client used
    name_gaps(answer, plan)
    return answer


def _delta(data: bytes) -> bytes:
    audio = b64encode(data).decode("ascii")
    return event_frame({"type": "speech.audio.delta", "audio": audio}) if data else b""
