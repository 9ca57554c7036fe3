"""How Cartesia's requests want a text spoken, and the events of its audio."""

import time
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from api.dialects.outputs import SpeechOutput
from api.dialects.voices import ForeignVoice, voice_for
from api.http.errors import ApiError, ErrorDialect, to_api_error
from api.sockets.kernel.conversation import json_text
from api.sockets.tts.events import LenientModel
from configs.load import load_yaml
from configs.schema.base import StrictModel
from models.base import VoiceGender
from pipelines.billing.operation import Operation
from pipelines.tts.dictionaries import DictionaryRef
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import ContextVoice, EncodedChunk, SpeakingContext
from telemetry.tracing import request_id

PREFIX, SCHEMES = "/cartesia", ("bearer", "x-api-key")
Json = dict[str, Any]


class CartesiaNames(StrictModel):
    """The tables of `names.yaml`."""

    outputs: dict[str, dict[str, SpeechOutput]]  # by container and encoding
    speeds: dict[str, float]
    stock: dict[str, VoiceGender]


NAMES = load_yaml(CartesiaNames, str(Path(__file__).with_name("names.yaml")))


class CartesiaVoice(LenientModel):
    mode: Literal["id"] = "id"
    id: str = Field(min_length=1, max_length=200, description="Or the name of a voice.")


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


def _as_voice(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


class CartesiaSpeech(LenientModel):
    """How a text is spoken. The voice decides the model."""

    voice: Annotated[
        CartesiaVoice, BeforeValidator(_as_voice, json_schema_input_type=str | CartesiaVoice)
    ]
    output_format: CartesiaFormat
    model_id: str | None = None
    language: str | None = Field(default=None, description="For a voice of Cartesia's.")
    locale: str | None = None
    generation_config: CartesiaGeneration = CartesiaGeneration()
    speed: Literal["slow", "normal", "fast"] = "normal"
    pronunciation_dict_id: str | None = Field(default=None, max_length=100)
    add_timestamps: bool = False
    context_id: str | None = Field(default=None, max_length=256)

    async def open(
        self,
        synthesis: PaidSynthesis,
        workspace_id: int,
        operation: Operation,
        *,
        is_raw: bool = False,
    ) -> ContextVoice:
        """Raises ApiError, EngineError, PipelineError or DatabaseError."""
        given, wanted, foreign = self.output_format, self.voice.id, None
        if is_raw and given.container != "raw":
            raise ApiError("validation_error", "output_format.container: must be raw here")
        make_encoder = given.output.opener(given.sample_rate, given.bit_rate)
        if (gender := NAMES.stock.get(wanted)) is not None:
            language = (self.language or self.locale or "en").partition("-")[0]
            foreign = ForeignVoice(wanted, language.lower(), gender)
        directory, dictionary = synthesis.pipeline.directory, self.pronunciation_dict_id
        async with synthesis.events.recording(workspace_id, "tts.failed", voice_id=wanted):
            voice = await voice_for(wanted, foreign, directory, workspace_id, "voice.id")
        style = SpeechRequest(
            text="",
            speed=self.generation_config.speed or NAMES.speeds[self.speed],
            timings=self.add_timestamps,
            pronunciations=(DictionaryRef(id=dictionary),) if dictionary else (),
        )
        about = (synthesis, workspace_id, voice, style, make_encoder)
        slow = given.container == "mp3"
        return ContextVoice(*about, slow_encoder=slow, operation=operation)


class CartesiaWire:
    """The events of one context. After an error, or when the client cancelled it, there are no
    more: its client would give them to another context."""

    context: SpeakingContext | None = None

    def __init__(self, context_id: str) -> None:
        self._context_id = context_id
        self._flush_id = 1  # counts the flushes of the client
        self._since = time.perf_counter()
        self._has_failed = False

    def event(self, kind: str, status: int = 206, **fields: Any) -> Json:
        about = {"type": kind, "status_code": status, "done": status != 206}
        return {**about, "context_id": self._context_id, **fields}

    def events(self, chunk: EncodedChunk) -> list[Json]:
        since, self._since = self._since, time.perf_counter()
        about: Json = {"flush_id": self._flush_id}
        timed = {"step_time": round((self._since - since) * 1000, 3), **about}
        made = [self.event("chunk", data=b64encode(chunk.data).decode("ascii"), **timed)]
        if words := [one for one in chunk.words or () if not one.mark]:
            times = {
                "words": [one.word for one in words],
                "start": [round(one.start_s, 3) for one in words],
                "end": [round(one.end_s, 3) for one in words],
            }
            made.append(self.event("timestamps", word_timestamps=times, **about))
        return made

    def failure(self, error: Exception) -> Json:
        shown = to_api_error(error)
        return self.event("error", shown.status, **described(shown, request_id.get() or "")[0])

    def audio(self, chunk: EncodedChunk) -> tuple[str, ...]:
        return tuple(map(json_text, self.events(chunk)))

    def rest(self, spoken_s: float) -> None:
        """No words are held back."""
        if self._has_failed and self.context is not None:
            self.context.cancel()

    def flushed(self, *, is_automatic: bool) -> str | None:
        if is_automatic:
            return None
        number, self._flush_id = self._flush_id, self._flush_id + 1
        return json_text(self.event("flush_done", flush_id=number, flush_done=True))

    def closed(self) -> str | None:
        is_cancelled = self.context is not None and self.context.is_cancelled
        return None if is_cancelled else json_text(self.event("done", 200))

    def error(self, error: Exception) -> str:
        self._has_failed = True
        return json_text(self.failure(error))


def described(error: ApiError, identity: str) -> tuple[Json, dict[str, str]]:
    """What Cartesia's clients read of an error."""
    about = {"error_code": error.code, "title": error.code.replace("_", " ").capitalize()}
    return {**about, "message": error.message, "request_id": identity}, {}


CARTESIA_ERRORS = ErrorDialect((f"{PREFIX}/",), described)
