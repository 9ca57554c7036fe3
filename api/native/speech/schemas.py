"""What the speech routes take and give."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, field_validator

from api.http.schemas import RequestModel
from pipelines.audio.encode.files import OutputFormat
from pipelines.audio.encode.formats import StreamFormat
from pipelines.tts.chunks import TimedWord
from pipelines.tts.pipeline import SpeechRequest

TEXT_CHARACTERS = 5000


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


SpokenText = Annotated[
    str, Field(min_length=1, max_length=TEXT_CHARACTERS), AfterValidator(_not_blank)
]
"""What one request says."""

Ratio = Annotated[float, Field(ge=0.5, le=2.0)]


class SpeechBody(RequestModel):
    """What to say, and how."""

    text: SpokenText
    voice_id: str | None = Field(
        default=None, max_length=100, description="Wins over `voice`; see `GET /default-voices`."
    )
    voice: str | None = Field(
        default=None, max_length=200, description="A voice's name, without regard to case."
    )
    enhance: bool = Field(
        default=True, description="High-pass, loudness to -16 LUFS and a true-peak limit of -1 dB."
    )
    speed: Ratio = Field(default=1.0, description="Tempo; the pitch stays.")
    pitch: Ratio = Field(default=1.0, description="Frequency ratio; the tempo stays.")
    timestamps: bool = Field(default=False, description="Adds `words` and when each sounds.")

    @field_validator("voice_id", "voice", mode="after")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value if value and value.strip() else None

    def to_request(self, workspace_id: int) -> SpeechRequest:
        return SpeechRequest(
            text=self.text,
            voice_id=self.voice_id,
            voice=self.voice,
            speed=self.speed,
            pitch=self.pitch,
            enhance=self.enhance,
            timings=self.timestamps,
            workspace_id=workspace_id,
        )


class SynthesisBody(SpeechBody):
    """What to say, and the file to write."""

    output_format: OutputFormat = "mp3"


class StreamBody(SpeechBody):
    """What to say, and the format of the stream."""

    output_format: StreamFormat = Field(
        default="mp3", description="`pcm` is 16-bit little-endian mono; `sample_rate` is beside it."
    )


class SpokenWord(BaseModel):
    """A word of the text as it was sent, and when it sounds."""

    word: str
    start: float = Field(description="Seconds from the start of the audio.")
    end: float
    text_start: int = Field(description="Offset of the word in `text`, in code points.")
    text_end: int

    @classmethod
    def of(cls, word: TimedWord) -> "SpokenWord":
        return cls(
            word=word.word,
            start=round(word.start_s, 3),
            end=round(word.end_s, 3),
            text_start=word.text_start,
            text_end=word.text_end,
        )


class SynthesisResult(BaseModel):
    """A whole file of speech."""

    success: Literal[True] = True
    message: str
    audio_base64: str
    sample_rate: int = Field(description="Hz that a decoder gives.")
    duration_seconds: float
    encoding: Literal["MP3", "LINEAR16", "OGG_OPUS", "FLAC"]
    output_format: OutputFormat
    words: list[SpokenWord] | None = Field(default=None, description="Only with `timestamps`.")


class ChunkResult(BaseModel):
    """A piece of the stream."""

    audioContent: str = Field(description="Base64; the pieces joined are one file.")
    sample_rate: int = Field(description="Hz that a decoder gives.")
    words: list[SpokenWord] | None = Field(default=None, description="Only with `timestamps`.")


class ChunkLine(BaseModel):
    """A line with audio."""

    type: Literal["chunk"]
    result: ChunkResult


class CompleteLine(BaseModel):
    """The last line of a stream that succeeded."""

    type: Literal["complete"]


class ErrorLine(BaseModel):
    """The last line of a stream that failed."""

    type: Literal["error"]
    error: str
    message: str


StreamLine = Annotated[ChunkLine | CompleteLine | ErrorLine, Field(discriminator="type")]
