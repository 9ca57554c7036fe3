"""Speech as OpenAI's clients read it: bare bytes, or events with base64."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from anyio import to_thread

from api.http.errors import to_api_error
from api.http.sse import error_frame
from api.http.streaming import CutShort
from api.openai.speech.body import SpeechFormat
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.audio.encode.files import CODECS
from pipelines.audio.encode.formats import open_encoder
from pipelines.tts.chunks import SpokenChunk

PCM_RATE = 24_000  # Hz, whatever the voice has
MEDIA_TYPES = {
    "opus": "audio/ogg",
    "pcm": "audio/pcm",
    **{name: CODECS[name].media_type for name in ("mp3", "aac", "flac", "wav")},
}


def open_speech_encoder(response_format: SpeechFormat, sample_rate: int) -> AudioEncoder:
    """An encoder of a stream; `sample_rate`, Hz, is that of the speech."""
    if response_format == "pcm":
        return open_encoder("pcm", PCM_RATE)
    return open_encoder("ogg" if response_format == "opus" else response_format, sample_rate)


async def audio_bytes(
    first: SpokenChunk, rest: AsyncGenerator[SpokenChunk, None], response_format: SpeechFormat
) -> AsyncGenerator[bytes, None]:
    """One file in pieces. Raises CutShort when it fails: bytes have no other way to say so.

    Who made `rest` closes it.
    """
    try:
        async with aclosing(_encoded(first, rest, response_format)) as pieces:
            async for data in pieces:
                yield data
    except Exception as error:  # whatever failed, the client must see no whole file
        with suppress(Exception):  # the failure below is the one to report
            await rest.athrow(error)  # what failed here is no reason to pay either
        raise CutShort(to_api_error(error).error) from None


async def audio_events(
    first: SpokenChunk,
    rest: AsyncGenerator[SpokenChunk, None],
    response_format: SpeechFormat,
    characters: int,
) -> AsyncGenerator[bytes, None]:
    """The same pieces as events; a failure is an event too, and then the end."""
    try:
        async with aclosing(_encoded(first, rest, response_format)) as pieces:
            async for data in pieces:
                audio = b64encode(data).decode("ascii")
                yield _event({"type": "speech.audio.delta", "audio": audio})
        # What is billed here are characters.
        usage = {"input_tokens": characters, "output_tokens": 0, "total_tokens": characters}
        yield _event({"type": "speech.audio.done", "usage": usage})
    except Exception as error:  # the status is sent: an error event is all that is left
        with suppress(Exception):  # the failure below is the one to report
            await rest.athrow(error)
        yield error_frame(to_api_error(error))


async def _encoded(
    first: SpokenChunk, rest: AsyncGenerator[SpokenChunk, None], response_format: SpeechFormat
) -> AsyncGenerator[bytes, None]:
    encoder = open_speech_encoder(response_format, first.audio.sample_rate)
    for data in await to_thread.run_sync(encoder.encode, first.audio):
        yield data
    async for chunk in rest:
        for data in await to_thread.run_sync(encoder.encode, chunk.audio):
            yield data
    for data in await to_thread.run_sync(encoder.flush):
        yield data


def _event(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()
