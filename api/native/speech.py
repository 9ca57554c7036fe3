"""Text to files and streams of speech, and what would be spoken, free of charge."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from starlette.responses import Response

from api.http.bodies import NOT_BLANK, SPOKEN, RequestModel
from api.http.errors import to_api_error
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import Base64Json, NdjsonStream, encode_frames, json_line
from api.native.pronunciations import DictionaryNames
from models.errors import UnknownVoice
from pipelines.audio.encode.encoder import AudioEncoder, OutputFormat
from pipelines.audio.encode.formats import StreamFormat, open_encoder
from pipelines.billing.billing import to_usd
from pipelines.errors import VoiceNotFound
from pipelines.text.spoken_length import LETTERS_PER_S, spoken_length
from pipelines.tts.reading import ScriptTurn, SpeechRequest
from pipelines.tts.shaping import SpokenChunk, TimedWord, timings_json

router = make_router("text to speech", scope="tts", visitors=True)
explanations = make_router("text to speech", scope="tts")
routers = (router, explanations)

LINE_S = 0.1  # least audio of a line, except the first and the last
TEXT_CHARACTERS = 5000


SpokenText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=TEXT_CHARACTERS,
        description="A text, or a document of SSML. Its speech lasts at most 15 minutes. Costs its "
        "characters without markup, or a third of the letters that it is spoken with where digits, "
        "signs, short lines or breaks make that more.",
    ),
    NOT_BLANK,
    SPOKEN,
]
"""The text of one request."""

Ratio = Annotated[float, Field(ge=0.5, le=2.0)]


class SpeechBody(RequestModel):
    """The text to speak, or a script of several speakers, and the options of its speech."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("required"))

    text: SpokenText
    script: tuple[ScriptTurn, ...] = Field(
        default=(),
        max_length=100,
        strict=False,
        description="In place of `text`, which counts as its texts, joined by line feeds.",
    )
    voice_id: str | None = Field(
        default=None, max_length=100, description="Overrides `voice`; see `GET /default-voices`."
    )
    voice: str | None = Field(
        default=None,
        max_length=200,
        description="A voice's name, without regard to case, or its id.",
    )
    enhance: bool = Field(
        default=True, description="High-pass, loudness to -16 LUFS and a true-peak limit of -1 dB."
    )
    speed: Ratio = Field(default=1.0, description="Tempo; the pitch stays.")
    pitch: Ratio = Field(default=1.0, description="Frequency ratio; the tempo stays.")
    timestamps: bool = Field(default=False, description="Adds `words` and their times.")
    pronunciations: DictionaryNames = ()

    @model_validator(mode="before")
    @classmethod
    def _joins_script(cls, body: Any) -> Any:
        script = body.get("script") if isinstance(body, dict) else None
        if not isinstance(script, list):
            return body
        if "text" in body:
            raise ValueError("send text or script")
        lines = [one.get("text") for one in script if isinstance(one, dict)]
        return {**body, "text": "\n".join(one for one in lines if isinstance(one, str))}

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
        named = {name: value for name, value in self if name in SpeechRequest.__match_args__}
        return SpeechRequest(**named, timings=self.timestamps, workspace_id=workspace_id)


class SynthesisBody(SpeechBody):
    """The text to speak, and the format of the file."""

    output_format: OutputFormat = "mp3"


class StreamBody(SpeechBody):
    """The text to speak, and the format of the stream."""

    output_format: StreamFormat = Field(
        default="mp3", description="`pcm` is 16-bit little-endian mono; see `sample_rate`."
    )


Unread = Annotated[
    list[str],
    Field(description="The parts of the text that no voice reads; they are left out, and free."),
]


class SpokenWord(BaseModel):
    """A word of the request's text, and its times in the audio."""

    word: str
    start: float = Field(description="Seconds from the start of the audio.")
    end: float
    text_start: int = Field(description="Offset of the word in `text`, in code points.")
    text_end: int


class SpokenMark(BaseModel):
    """A `<mark>` of SSML, and when the word after it begins."""

    mark: str = Field(description="Its name.")
    time: float = Field(description="Seconds from the start of the audio.")
    text_start: int


class SynthesisResult(BaseModel):
    """A whole file of speech."""

    success: Literal[True] = True
    message: str
    audio_base64: str
    sample_rate: int = Field(description="Of the decoded audio, in Hz.")
    duration_seconds: float
    encoding: Literal["MP3", "LINEAR16", "OGG_OPUS", "FLAC"]
    output_format: OutputFormat
    words: list[SpokenWord] | None = Field(default=None, description="Only with `timestamps`.")
    marks: list[SpokenMark] | None = Field(default=None, description="Where SSML has some.")
    unread: Unread | None = Field(default=None, description="Where there are such parts.")


class ChunkResult(BaseModel):
    """A chunk of the stream."""

    audioContent: str = Field(description="Base64; the chunks joined are one file.")
    sample_rate: int = Field(description="Of the decoded audio, in Hz.")
    words: list[SpokenWord] | None = Field(default=None, description="Only with `timestamps`.")
    marks: list[SpokenMark] | None = Field(default=None, description="Where SSML has some.")


class ChunkLine(BaseModel):
    """A line with audio."""

    type: Literal["chunk"]
    result: ChunkResult


class CompleteLine(BaseModel):
    """The last line of a stream that succeeded."""

    type: Literal["complete"]
    unread: Unread | None = Field(default=None, description="Where there are such parts.")


class ErrorLine(BaseModel):
    """The last line of a stream that failed."""

    type: Literal["error"]
    error: str
    message: str


StreamLine = Annotated[ChunkLine | CompleteLine | ErrorLine, Field(discriminator="type")]


class LineWriter:
    """Writes speech as lines of JSON, each with enough audio to be worth a line."""

    def __init__(self, output_format: StreamFormat, *, timestamps: bool) -> None:
        self._format = output_format
        self._timestamps = timestamps
        self.unread: Sequence[str] = ()
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
        return [self._line(), json_line({"type": "complete", **unread_json(self.unread)})]

    def fail(self, error: Exception) -> bytes:
        shown = to_api_error(error)
        end = json_line({"type": "error", "error": shown.code, "message": shown.message})
        return self._line() + end  # what waits for a longer line is charged, too

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
    """The field that names what no voice reads, where there is some."""
    return {"unread": list(unread)} if unread else {}


@router.post("/tts-synthesize", summary="Speak a text", response_model=SynthesisResult)
async def synthesize(
    body: SynthesisBody, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """Returns one file. If the client disconnects, the work stops.

    What was made until then is charged from the 21st time in an hour on.
    """
    synthesis, workspace_id = speech.synthesis, principal.workspace_id
    plan = await synthesis.plan(body.to_request(workspace_id), workspace_id)
    words, file = await synthesis.speak_file(plan, workspace_id, operation, body.output_format)
    answer: dict[str, Any] = {
        "success": True,
        "message": "Speech synthesized successfully",
        "sample_rate": file.sample_rate,
        "duration_seconds": round(file.duration_s, 6),
        "encoding": file.encoding,
        "output_format": file.output_format,
        **unread_json(plan.unread),
    }
    if body.timestamps:
        answer |= timings_json(words)
    return Base64Json("audio_base64", file.file, answer)


@router.post(
    "/tts-stream",
    summary="Stream the speech of a text",
    responses=NdjsonStream.documented(
        StreamLine, "One JSON object a line: `chunk` many times, then `complete` or `error`"
    ),
)
async def stream(
    body: StreamBody, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """Lines of JSON; the first audio is sent before the second sentence is synthesised.

    The audio of all lines joined is one file. If the client disconnects, the work stops, and the
    speech synthesised until then is charged.
    """
    # Errors before the first audio set the HTTP status, except that of an unknown voice.
    workspace_id = principal.workspace_id
    writer = LineWriter(body.output_format, timestamps=body.timestamps)
    try:
        asked = body.to_request(workspace_id)
        plan, first, chunks = await speech.synthesis.start_stream(asked, workspace_id, operation)
    except (VoiceNotFound, UnknownVoice) as error:
        return NdjsonStream(_only(writer.fail(error)))
    writer.unread = plan.unread
    return NdjsonStream(encode_frames(first, chunks, writer), chunks)


async def _only(line: bytes) -> AsyncGenerator[bytes, None]:
    """A stream that failed before it began."""
    yield line


class ExplainBody(SpeechBody):
    """A request for speech; nothing of it is synthesised."""

    language: str | None = Field(default=None, max_length=3, description="Where no voice is named.")


class SpokenSentence(BaseModel):
    text: str = Field(description="As it is spoken: numbers, dates and signs are words.")
    language: str
    voice_id: str
    phonemes: str | None = Field(description="The symbols of the engine; null where it has none.")


class Explanation(BaseModel):
    sentences: list[SpokenSentence] = Field(description="A long one is in parts.")
    voice_id: str
    language: str = Field(description="Of the voice.")
    characters: int = Field(description="Those that would be charged.")
    price: float = Field(description="USD.")
    estimated_seconds: float
    unread: Unread


@explanations.post("/tts/explain", summary="Show what would be spoken, free of charge")
async def explain(body: ExplainBody, principal: PrincipalDep, speech: SpeechDep) -> Explanation:
    pipeline = speech.synthesis.pipeline
    plan = await pipeline.plan(body.to_request(principal.workspace_id))
    explained = await pipeline.explain(plan)
    passages, characters = plan.passages, speech.synthesis.characters(plan)
    sentences = [
        SpokenSentence(
            text=chunk.text,
            language=chunk.language,
            voice_id=passages[chunk.passage].voice.id,
            phonemes=phonemes or None,
        )
        for chunk, phonemes in explained
    ]
    seconds = sum(one.pause_s or one.gap_s / one.speed for one in passages) + sum(
        spoken_length(chunk.text) / LETTERS_PER_S / passages[chunk.passage].speed
        for chunk, _ in explained
    )
    return Explanation(
        sentences=sentences,
        voice_id=plan.voice.id,
        language=plan.voice.language,
        characters=characters,
        price=to_usd(speech.billing.cost("tts", characters)),
        estimated_seconds=round(seconds, 1),
        unread=list(plan.unread),
    )
