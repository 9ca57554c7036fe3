"""Cartesia's API: speech over HTTP and on a socket, voices, and short-lived tokens."""

import time
import uuid
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from api.callers import Caller, CallerDep
from api.dialects.outputs import (
    AudioWriter,
    ForeignVoice,
    SpeechOutput,
    columns,
    stream_speech,
    voice_for,
)
from api.dialects.requests import SocketMessage, dialect_socket, short_token
from api.http.bodies import RequestModel
from api.http.errors import CODED, ApiError, ErrorDialect, InvalidField, to_api_error
from api.http.routing import PlatformDep, PrincipalDep, make_router
from api.http.streaming import EventStream, named_frame
from api.http.uploads import BINARY
from api.native.speech import SpokenText
from api.sockets.kernel.conversation import ClientFault, checked, json_text, parse_spoken
from api.sockets.tts.contexts import DEFAULT_DELAY_MS, ContextsConversation, FlushRules
from api.sockets.tts.events import LenientModel
from configs.load import load_yaml
from configs.schema.base import StrictModel
from models.base import VoiceGender
from pipelines.accounts.authentication import Scope
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.tts.dictionaries import DictionaryRef
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import (
    ContextFault,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
    SpeechStream,
)
from telemetry.tracing import request_id

PREFIX = "/cartesia"
SCHEMES = ("bearer", "x-api-key")
Json = dict[str, Any]


class CartesiaNames(StrictModel):
    outputs: dict[str, dict[str, SpeechOutput]]  # by container and encoding
    speeds: dict[str, float]
    stock: dict[str, VoiceGender]


NAMES = load_yaml(CartesiaNames, str(Path(__file__).with_name("names.yaml")))


class CartesiaVoice(LenientModel):
    mode: Literal["id"] = "id"
    id: str = Field(min_length=1, max_length=200, description="Voice id or name.")


class CartesiaFormat(LenientModel):
    container: Literal["raw", "wav", "mp3"] = "raw"
    encoding: Literal["pcm_f32le", "pcm_s16le", "pcm_mulaw", "pcm_alaw"] = "pcm_s16le"
    sample_rate: int | None = None
    bit_rate: int | None = None

    @property
    def output(self) -> SpeechOutput:
        return NAMES.outputs[self.container][self.encoding]


class CartesiaGeneration(LenientModel):
    speed: float | None = Field(default=None, ge=0.5, le=2.0)


class CartesiaSpeech(LenientModel):
    """Voice, format and style of speech. The voice determines the model."""

    voice: Annotated[
        CartesiaVoice,
        BeforeValidator(
            lambda voice: {"id": voice} if isinstance(voice, str) else voice,
            json_schema_input_type=str | CartesiaVoice,
        ),
    ]
    output_format: CartesiaFormat
    model_id: str | None = None
    language: str | None = Field(
        default=None, description="Language of the voice that replaces a Cartesia voice."
    )
    locale: str | None = None
    generation_config: CartesiaGeneration = CartesiaGeneration()
    speed: Literal["slow", "normal", "fast"] = "normal"
    pronunciation_dict_id: str | None = Field(default=None, max_length=100)
    add_timestamps: bool = False
    context_id: str | None = Field(default=None, max_length=256)

    async def open(self, caller: Caller, *, is_raw: bool = False) -> SpeechStream:
        """Opens the speech; `is_raw` refuses formats with a container. Raises an error of CODED."""
        audio = self.output_format
        if is_raw and audio.container != "raw":
            raise InvalidField("output_format.container", "must be raw here")
        make_encoder = audio.output.opener(audio.sample_rate, audio.bit_rate)
        voice_id = self.voice.id
        foreign = foreign_voice(voice_id, self.language or self.locale)
        async with caller.recording_failures(voice_id):
            voice = await voice_for(voice_id, foreign, caller, "voice.id")
        dictionary = self.pronunciation_dict_id
        style = SpeechRequest(
            text="",
            speed=self.generation_config.speed or NAMES.speeds[self.speed],
            timings=self.add_timestamps,
            pronunciations=(DictionaryRef(id=dictionary),) if dictionary else (),
        )
        return caller.open_stream(voice, style, make_encoder, slow_encoder=audio.container == "mp3")


def foreign_voice(voice_id: str, language: str | None = None) -> ForeignVoice | None:
    """Returns the voice for a default id of Cartesia's clients; None for any other id."""
    gender = NAMES.stock.get(voice_id)
    code = (language or FALLBACK_LANGUAGE).partition("-")[0].lower()
    return gender and ForeignVoice(voice_id, code, gender, is_multilingual=not language)


class CartesiaWire(ContextWire):
    """Writes the events of one context. It writes none after an error or a cancellation, since the
    client would take them for events of another context."""

    context: SpeakingContext | None = None

    def __init__(self, context_id: str) -> None:
        self._context_id = context_id
        self._flush_id = 1  # number of the client's next flush
        self._last_chunk_at = time.perf_counter()
        self._has_failed = False

    def event(self, kind: str, status: int = 206, **fields: Any) -> Json:
        return {
            "type": kind,
            "status_code": status,
            "done": status != 206,
            "context_id": self._context_id,
            **fields,
        }

    def events(self, chunk: EncodedChunk) -> list[Json]:
        """Returns the events about a chunk: its audio, and the times of its words."""
        now = time.perf_counter()
        step_ms = round((now - self._last_chunk_at) * 1000, 3)
        self._last_chunk_at = now
        audio = b64encode(chunk.data).decode("ascii")
        flush_id = self._flush_id
        events = [self.event("chunk", data=audio, step_time=step_ms, flush_id=flush_id)]
        words = [
            (word.word, word.start_s, word.end_s) for word in chunk.words or () if not word.mark
        ]
        if words:
            times = columns(words, "words", "start", "end")
            events.append(self.event("timestamps", word_timestamps=times, flush_id=flush_id))
        return events

    def failure(self, error: Exception) -> Json:
        api_error = to_api_error(error)
        body, _ = cartesia_error(api_error, request_id.get() or "")
        return self.event("error", api_error.status, **body)

    def audio(self, chunk: EncodedChunk) -> tuple[str, ...]:
        return tuple(map(json_text, self.events(chunk)))

    def rest(self, spoken_s: float) -> None:
        """Cancels a context that has failed. This dialect holds no words back."""
        if self._has_failed and self.context is not None:
            self.context.cancel()

    def flushed(self, *, is_automatic: bool) -> str | None:
        if is_automatic:
            return None
        number = self._flush_id
        self._flush_id += 1
        return json_text(self.event("flush_done", flush_id=number, flush_done=True))

    def closed(self) -> str | None:
        is_cancelled = self.context is not None and self.context.is_cancelled
        return None if is_cancelled else json_text(self.event("done", 200))

    def error(self, error: Exception) -> str:
        self._has_failed = True
        return json_text(self.failure(error))


def cartesia_error(error: ApiError, request_id: str) -> tuple[Json, dict[str, str]]:
    body = {
        "error_code": error.code,
        "title": error.code.replace("_", " ").capitalize(),
        "message": error.message,
        "request_id": request_id,
    }
    return body, {}


# Pipecat's `CartesiaSTTService` drops the path of its base URL.
CARTESIA_ERRORS = ErrorDialect((f"{PREFIX}/", "/stt/websocket"), cartesia_error)

TAG = "Cartesia's dialect"
router = make_router(TAG, scope="tts", visitors=True, schemes=SCHEMES)
tokens = make_router(TAG, scope="tts", shows_secret=True, schemes=SCHEMES)
routers = (router, tokens)
MEDIA = {
    output.media_type: {"schema": BINARY}
    for by_encoding in NAMES.outputs.values()
    for output in by_encoding.values()
}


class CartesiaText(CartesiaSpeech):
    """The text, with its voice, format and style."""

    transcript: SpokenText


@router.post(
    f"{PREFIX}/tts/bytes",
    summary="Stream speech, for Cartesia's clients",
    response_class=Response,
    responses={200: {"content": MEDIA}},
)
async def speak(body: CartesiaText, caller: CallerDep) -> Response:
    """Sends the first audio before the second sentence is synthesised."""
    voice = await body.open(caller)
    media_type = body.output_format.output.media_type
    return await stream_speech(voice, body.transcript, AudioWriter(), media_type=media_type)


@router.post(
    f"{PREFIX}/tts/sse",
    summary="Stream speech as server-sent events, for Cartesia's clients",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def speak_events(body: CartesiaText, caller: CallerDep) -> Response:
    """Sends `chunk` events and, on request, `timestamps`; then `done` or `error`."""
    voice = await body.open(caller, is_raw=True)
    writer = CartesiaEventWriter(body.context_id or str(uuid.uuid4()))
    return await stream_speech(voice, body.transcript, writer, EventStream)


class CartesiaEventWriter(CartesiaWire):
    """Writes the events of a text as server-sent events."""

    def write(self, chunk: EncodedChunk) -> bytes:
        return b"".join(map(named_frame, self.events(chunk)))

    def finish(self) -> list[bytes]:
        return [named_frame(self.event("done", 200))]

    def fail(self, error: Exception) -> bytes:
        return named_frame(self.failure(error))


class AccessTokenBody(RequestModel):
    grants: dict[Scope, bool] = {"tts": True}
    expires_in: int = Field(default=60, ge=1, le=3600)


@tokens.post(f"{PREFIX}/access-token", summary="Create a short-lived token, for Cartesia's clients")
async def create_access_token(
    body: AccessTokenBody, principal: PrincipalDep, platform: PlatformDep
) -> Json:
    """Creates a browser token for `tts`, `stt` or both, limited to the scopes of the key."""
    scopes: tuple[Scope, ...] = ("tts", "stt")
    wanted = [scope for scope in scopes if body.grants.get(scope)]
    return {"token": await short_token(principal, platform, wanted, body.expires_in)}


class GenerationMessage(SocketMessage, CartesiaSpeech):
    """Adds text to a context, or ends it. A context's first message opens it with a voice."""

    transcript: str = ""
    continues: bool = Field(default=False, alias="continue")
    flush: bool = False
    max_buffer_delay_ms: int = Field(default=DEFAULT_DELAY_MS, ge=0, le=5000)


class CartesiaConversation(ContextsConversation):
    """Contexts, each of which lasts from its first message to `done`."""

    def error(self, message: str) -> str:
        return CartesiaWire("").error(ApiError("unavailable", message))

    async def receive_text(self, text: str) -> None:
        context_id = ""
        try:
            event = parse_spoken(text)
            context_id = str(event.get("context_id") or uuid.uuid4())[:256]
            context = self.contexts.find(context_id)
            if not event.get("cancel"):
                await self._add(context_id, checked(GenerationMessage, event))
            elif context is not None:
                self.flushes[context_id].stop()
                context.cancel()
        except (ClientFault, ContextFault) as fault:
            error = ApiError("validation_error", str(fault))
            raise ClientFault(str(fault), CartesiaWire(context_id).error(error)) from None
        except CODED as error:
            raise ClientFault(str(error), CartesiaWire(context_id).error(error)) from None

    async def _add(self, context_id: str, message: GenerationMessage) -> None:
        """Adds a message to its context. Raises ContextFault or errors of `CartesiaSpeech.open`."""
        context = self.contexts.find(context_id)
        if context is None:
            self.make_room()
            voice = await message.open(self.caller, is_raw=True)
            rules = FlushRules(delay_s=message.max_buffer_delay_ms / 1000)
            wire = CartesiaWire(context_id)
            wire.context = context = self.open(context_id, voice, wire, rules)
            self.contexts.start(context)
        if context.is_closing and not message.transcript.strip():
            return
        context.add_text(message.transcript)
        flushes = self.flushes[context_id]
        if not message.continues:
            flushes.stop()
            context.close()
        elif message.flush:
            flushes.flush()
        else:
            flushes.added()


routes = dialect_socket(
    f"{PREFIX}/tts/websocket",
    "tts",
    CartesiaConversation,
    lambda query: None,
    SCHEMES,
    key_queries=("api_key", "access_token"),
)
