"""Speech as files and streams, and free previews of the spoken text."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.responses import Response

from api.callers import CallerDep
from api.http.bodies import NOT_BLANK, SPOKEN, RequestModel
from api.http.errors import to_api_error
from api.http.routing import PrincipalDep, SpeechDep, make_router
from api.http.streaming import Base64Json, NdjsonStream, encode_frames, json_line
from api.native.pronunciations import DictionaryNames
from models.errors import UnknownVoice
from pipelines.audio.encode.encoder import AudioEncoder, OutputFormat
from pipelines.audio.encode.formats import StreamFormat, open_encoder
from pipelines.billing.billing import to_usd
from pipelines.errors import VoiceNotFound
from pipelines.text.spoken_length import LETTERS_PER_S, spoken_length
from pipelines.tts.pipeline import SpeechPlan
from pipelines.tts.reading import ScriptTurn, SpeechRequest
from pipelines.tts.shaping import SpokenChunk, TimedWord, timings_json

router = make_router("text to speech", scope="tts", visitors=True)
explanations = make_router("text to speech", scope="tts")
routers = (router, explanations)

LINE_S = 0.1  # minimum audio of a line (s), except the first and the last
TEXT_CHARACTERS = 5000
SCRIPT_LINES = 100

SpokenText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=TEXT_CHARACTERS,
        description="Plain text or SSML, at most 15 minutes of speech. Billed by characters of "
        "plain text. Text that expands when spoken (digits, symbols, short lines, breaks) is "
        "billed at one third of its spoken letters if that is more.",
    ),
    NOT_BLANK,
    SPOKEN,
]
"""Text of one request."""

Ratio = Annotated[float, Field(ge=0.5, le=2.0)]


class SpeechBody(RequestModel):
    """A text or a script of several speakers, with speech options."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("required"))

    text: SpokenText
    script: Annotated[tuple[ScriptTurn, ...], SPOKEN] = Field(
        default=(),
        max_length=SCRIPT_LINES,
        strict=False,
        description="Lines of several speakers; joined by line feeds, they form `text`.",
    )
    voice_id: str | None = Field(
        default=None,
        max_length=100,
        description="Id from `GET /default-voices`; overrides `voice`.",
    )
    voice: str | None = Field(
        default=None, max_length=200, description="Voice name (case-insensitive) or id."
    )
    enhance: bool = Field(
        default=True,
        description="Applies a high-pass filter, -16 LUFS loudness and a -1 dBTP limiter.",
    )
    speed: Ratio = Field(default=1.0, description="Tempo factor; does not change the pitch.")
    pitch: Ratio = Field(default=1.0, description="Pitch factor; does not change the tempo.")
    timestamps: bool = Field(default=False, description="Adds `words` with times.")
    pronunciations: DictionaryNames = ()

    @model_validator(mode="before")
    @classmethod
    def _joins_script(cls, body: Any) -> Any:
        script = body.get("script") if isinstance(body, dict) else None
        if not isinstance(script, list):
            return body
        if body.get("text") is not None:
            raise ValueError("send either text or script")
        texts = [turn.get("text") for turn in script if isinstance(turn, dict)]
        return {**body, "text": "\n".join(text for text in texts if isinstance(text, str))}

    @field_validator("text", mode="before")
    @classmethod
    def _names_the_socket(cls, value: object) -> object:
        if isinstance(value, str) and len(value) > TEXT_CHARACTERS:
            raise ValueError(
                f"has {len(value)} characters, and at most {TEXT_CHARACTERS} are allowed; "
                "the WebSocket /ws/tts takes longer texts"
            )
        return value

    @field_validator("voice_id", "voice", mode="after")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value if value and value.strip() else None

    def to_request(self, workspace_id: int) -> SpeechRequest:
        options = {name: value for name, value in self if name in SpeechRequest.__match_args__}
        return SpeechRequest(**options, timings=self.timestamps, workspace_id=workspace_id)


class SynthesisBody(SpeechBody):
    """A text or script, with speech options and the file format."""

    output_format: OutputFormat = "mp3"


class StreamBody(SpeechBody):
    """A text or script, with speech options and the stream format."""

    output_format: StreamFormat = Field(
        default="mp3", description="`pcm` is 16-bit little-endian mono at `sample_rate`."
    )


Unread = Annotated[
    list[str], Field(description="Text that no voice can read. It is skipped and not charged.")
]


MAKESHIFT = "Voices that speak only because models of other voices still load, if any."


class SpokenWord(BaseModel):
    """A word of the request's text, with its times in the audio."""

    word: str
    start: float = Field(description="Start time in the audio, in seconds.")
    end: float
    text_start: int = Field(description="Offset of the word in `text`, in code points.")
    text_end: int


class SpokenMark(BaseModel):
    """An SSML `<mark>`, with the start time of the next word."""

    mark: str = Field(description="Name of the mark.")
    time: float = Field(description="Time in the audio, in seconds.")
    text_start: int


class SynthesisResult(BaseModel):
    """A complete speech file."""

    success: bool = True
    message: str
    audio_base64: str
    sample_rate: int = Field(description="Sample rate of the decoded audio, in Hz.")
    duration_seconds: float
    encoding: Literal["MP3", "LINEAR16", "OGG_OPUS", "FLAC"]
    output_format: OutputFormat
    words: list[SpokenWord] | None = Field(
        default=None, description="Words, if `timestamps` is true."
    )
    marks: list[SpokenMark] | None = Field(default=None, description="SSML marks, if any.")
    unread: Unread | None = Field(default=None, description="Text that was skipped, if any.")
    warnings: list[str] | None = Field(default=None, description=MAKESHIFT)


class ChunkResult(BaseModel):
    """Audio of one chunk."""

    audioContent: str = Field(description="Audio in base64. The concatenated chunks form one file.")
    sample_rate: int = Field(description="Sample rate of the decoded audio, in Hz.")
    words: list[SpokenWord] | None = Field(
        default=None, description="Words, if `timestamps` is true."
    )
    marks: list[SpokenMark] | None = Field(default=None, description="SSML marks, if any.")


class ChunkLine(BaseModel):
    """A line that carries audio."""

    type: Literal["chunk"]
    result: ChunkResult


class CompleteLine(BaseModel):
    """The last line of a successful stream."""

    type: Literal["complete"]
    unread: Unread | None = Field(default=None, description="Text that was skipped, if any.")
    warnings: list[str] | None = Field(default=None, description=MAKESHIFT)


class ErrorLine(BaseModel):
    """The last line of a failed stream."""

    type: Literal["error"]
    error: str
    message: str


StreamLine = Annotated[ChunkLine | CompleteLine | ErrorLine, Field(discriminator="type")]


class LineWriter:
    """Writer of speech as JSON lines, which have at least LINE_S of audio each."""

    def __init__(self, output_format: StreamFormat, *, timestamps: bool) -> None:
        self._format = output_format
        self._timestamps = timestamps
        self.gaps: dict[str, Any] = {}  # what the last line says of the speech
        self._encoder: AudioEncoder | None = None
        self._data: list[bytes] = []
        self._words: list[TimedWord] = []
        self._waiting_s = LINE_S  # so that the first line is sent at once

    def write(self, chunk: SpokenChunk) -> bytes:
        if self._encoder is None:
            self._encoder = open_encoder(self._format, chunk.audio.sample_rate)
        self._data += self._encoder.encode(chunk.audio)
        self._words += chunk.words
        self._waiting_s += chunk.audio.duration_s
        return self._line() if self._waiting_s >= LINE_S else b""

    def finish(self) -> list[bytes]:
        if self._encoder is not None:
            self._data += self._encoder.flush()
        return [self._line(), json_line({"type": "complete", **self.gaps})]

    def fail(self, error: Exception) -> bytes:
        failure = to_api_error(error)
        end = json_line({"type": "error", "error": failure.code, "message": failure.message})
        return self._line() + end  # waiting audio is charged, and so must be sent

    def _line(self) -> bytes:
        data = b"".join(self._data)
        if self._encoder is None or not (data or self._words):
            return b""
        result: dict[str, Any] = {
            "audioContent": b64encode(data).decode("ascii"),
            "sample_rate": self._encoder.sample_rate,
        }
        if self._timestamps:
            result |= timings_json(self._words)
        self._data.clear()
        self._words.clear()
        self._waiting_s = 0.0
        return json_line({"type": "chunk", "result": result})


def unread_json(unread: Sequence[str]) -> dict[str, Any]:
    """Returns the field `unread`, if there is text that no voice can read."""
    return {"unread": list(unread)} if unread else {}


def gaps_json(plan: SpeechPlan) -> dict[str, Any]:
    """Returns the fields `unread` and `warnings` of speech, if it has such."""
    return {**unread_json(plan.unread), **({"warnings": plan.warnings} if plan.warnings else {})}


@router.post("/tts-synthesize", summary="Synthesise speech", response_model=SynthesisResult)
async def synthesize(body: SynthesisBody, caller: CallerDep) -> Response:
    """Returns one audio file. If the client disconnects, synthesis stops.

    The first 20 disconnects in an hour are free; after that, the speech made so far is charged.
    """
    synthesis = caller.speech.synthesis
    workspace_id = caller.workspace_id
    form = body.output_format
    plan = await synthesis.plan(body.to_request(workspace_id), workspace_id)
    words, file = await synthesis.speak_file(plan, workspace_id, caller.operation, form)
    answer: dict[str, Any] = {
        "success": True,
        "message": "Speech synthesized successfully",
        "sample_rate": file.sample_rate,
        "duration_seconds": round(file.duration_s, 6),
        "encoding": file.encoding,
        "output_format": file.output_format,
        **gaps_json(plan),
    }
    if body.timestamps:
        answer |= timings_json(words)
    return Base64Json("audio_base64", file.file, answer)


@router.post(
    "/tts-stream",
    summary="Stream speech",
    responses=NdjsonStream.documented(
        StreamLine, "One JSON object per line: any number of `chunk`, then `complete` or `error`"
    ),
)
async def stream(body: StreamBody, caller: CallerDep) -> Response:
    """Streams JSON lines. The first audio is sent before the second sentence is synthesised.

    The concatenated audio of all lines forms one file. If the client disconnects, synthesis stops,
    and the speech made so far is charged.
    """
    # An error before the first audio sets the HTTP status, unless the voice is unknown.
    workspace_id = caller.workspace_id
    writer = LineWriter(body.output_format, timestamps=body.timestamps)
    try:
        plan, first, chunks = await caller.speech.synthesis.start_stream(
            body.to_request(workspace_id), workspace_id, caller.operation
        )
    except (VoiceNotFound, UnknownVoice) as error:
        return NdjsonStream(_only(writer.fail(error)))
    writer.gaps = gaps_json(plan)
    return NdjsonStream(encode_frames(first, chunks, writer), chunks)


async def _only(line: bytes) -> AsyncGenerator[bytes, None]:
    """Yields the single line of a stream that failed before its first audio."""
    yield line


class ExplainBody(SpeechBody):
    """A speech request that is only analysed, not synthesised."""

    language: str | None = Field(
        default=None, max_length=3, description="Language of the text, if no voice is named."
    )


class SpokenSentence(BaseModel):
    text: str = Field(description="Spoken form: numbers, dates and symbols are words.")
    language: str
    voice_id: str
    phonemes: str | None = Field(description="Engine's phoneme symbols; null if it has none.")


class Explanation(BaseModel):
    sentences: list[SpokenSentence] = Field(description="Sentences; long ones are split.")
    voice_id: str
    language: str = Field(description="Language of the voice.")
    characters: int = Field(description="Billable characters.")
    price: float = Field(description="Price in USD.")
    estimated_seconds: float
    unread: Unread


@explanations.post("/tts/explain", summary="Preview the spoken text and its price, free of charge")
async def explain(body: ExplainBody, principal: PrincipalDep, speech: SpeechDep) -> Explanation:
    pipeline = speech.synthesis.pipeline
    plan = await pipeline.plan(body.to_request(principal.workspace_id))
    explained = await pipeline.explain(plan)
    passages = plan.passages
    characters = speech.synthesis.characters(plan)
    sentences = [
        SpokenSentence(
            text=chunk.text,
            language=chunk.language,
            voice_id=passages[chunk.passage].voice.id,
            phonemes=phonemes or None,
        )
        for chunk, phonemes in explained
    ]
    seconds = sum(passage.pause_s or passage.gap_s / passage.speed for passage in passages)
    seconds += sum(
        spoken_length(chunk.text) / LETTERS_PER_S / passages[chunk.passage].speed
        for chunk, _ in explained
    )
    return Explanation(
        sentences=sentences,
        voice_id=plan.voice.id,
        language=plan.voice.language,
        characters=characters,
        price=0.0 if principal.is_owner else to_usd(speech.billing.cost("tts", characters)),
        estimated_seconds=round(seconds, 1),
        unread=list(plan.unread),
    )
