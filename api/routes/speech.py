"""Text to files of speech."""

from base64 import b64encode
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, field_validator
from starlette.responses import Response

from api.deps import ServicesDep
from api.encoding import EncodedAudio, OutputFormat, encode
from api.routing import make_router
from api.schemas import RequestModel
from api.services import Services
from api.sse import while_connected
from models.audio import AudioChunk
from pipelines.speech import SpeechRequest

router = make_router(scope="tts")

TEXT_CHARACTERS = 5000

Ratio = Annotated[float, Field(ge=0.5, le=2.0)]


class SynthesisBody(RequestModel):
    """What to say, and how."""

    text: str = Field(min_length=1, max_length=TEXT_CHARACTERS)
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
    output_format: OutputFormat = "mp3"

    @field_validator("text", mode="after")
    @classmethod
    def _has_text(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value

    @field_validator("voice_id", "voice", mode="after")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value if value and value.strip() else None


class SynthesisResult(BaseModel):
    """A whole file of speech."""

    success: Literal[True] = True
    message: str
    audio_base64: str
    sample_rate: int = Field(description="Hz that a decoder gives.")
    duration_seconds: float
    encoding: Literal["MP3", "LINEAR16", "OGG_OPUS", "FLAC"]
    output_format: OutputFormat


@router.post(
    "/tts-synthesize",
    tags=["text to speech"],
    summary="Speak a text",
    response_model=SynthesisResult,
)
async def synthesize(request: Request, body: SynthesisBody, services: ServicesDep) -> Response:
    """The whole text as one file. A client that leaves stops the work."""
    return await while_connected(request.receive, _speak(body, services))


async def _speak(body: SynthesisBody, services: Services) -> Response:
    speech = await services.speech.speak(
        SpeechRequest(
            text=body.text,
            voice_id=body.voice_id,
            voice=body.voice,
            speed=body.speed,
            pitch=body.pitch,
            enhance=body.enhance,
        )
    )
    return await to_thread.run_sync(_answer, speech.audio, body.output_format)


def _answer(audio: AudioChunk, output_format: OutputFormat) -> Response:
    """Encodes and renders; blocking. Not through the response model: base64 needs no check."""
    file: EncodedAudio = encode(audio, output_format)
    return JSONResponse(
        {
            "success": True,
            "message": "Speech synthesized successfully",
            "audio_base64": b64encode(file.data).decode("ascii"),
            "sample_rate": file.sample_rate,
            "duration_seconds": round(file.duration_s, 6),
            "encoding": file.encoding,
            "output_format": file.output_format,
        }
    )
