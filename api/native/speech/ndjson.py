"""Speech as lines of JSON, each sent as soon as there is something to hear."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from anyio import to_thread

from api.http.errors import to_api_error
from api.http.streaming import StreamedResponse
from api.native.speech.schemas import SpokenWord
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.audio.encode.formats import StreamFormat, open_encoder
from pipelines.tts.chunks import SpokenChunk, TimedWord

LINE_S = 0.1  # of audio in a line at least, but for the first and the last


class SpeechLines(StreamedResponse):
    """Newline-delimited JSON."""

    media_type = "application/x-ndjson"


class _LineWriter:
    """Encodes audio and gathers it until it is worth a line; blocking."""

    def __init__(self, output_format: StreamFormat, timestamps: bool) -> None:
        self._format = output_format
        self._encoder: AudioEncoder | None = None
        self._timestamps = timestamps
        self._data: list[bytes] = []
        self._words: list[TimedWord] = []
        self._waiting_s = LINE_S  # so that the first line waits for nothing

    def write(self, chunk: SpokenChunk) -> bytes:
        """A line, or nothing when it is too early for one."""
        if self._encoder is None:
            self._encoder = open_encoder(self._format, chunk.audio.sample_rate)
        self._data += self._encoder.encode(chunk.audio)
        self._words += chunk.words
        self._waiting_s += chunk.audio.duration_s
        return self._line() if self._waiting_s >= LINE_S else b""

    def finish(self) -> bytes:
        """The line with the rest."""
        if self._encoder is not None:
            self._data += self._encoder.flush()
        return self._line()

    def _line(self) -> bytes:
        data = b"".join(self._data)
        if self._encoder is None or not (data or self._words):
            return b""
        result: dict[str, Any] = {
            "audioContent": b64encode(data).decode("ascii"),
            "sample_rate": self._encoder.sample_rate,
        }
        if self._timestamps:
            result["words"] = word_list(self._words)
        self._data.clear()
        self._words.clear()
        self._waiting_s = 0.0
        return _to_line({"type": "chunk", "result": result})


async def speech_lines(
    first: SpokenChunk,
    rest: AsyncGenerator[SpokenChunk, None],
    output_format: StreamFormat,
    *,
    timestamps: bool,
) -> AsyncGenerator[bytes, None]:
    """The lines of one answer; a failure is a line too, and then the end.

    Who made `rest` closes it.
    """
    writer = _LineWriter(output_format, timestamps)
    try:
        if line := await to_thread.run_sync(writer.write, first):
            yield line
        async for chunk in rest:
            if line := await to_thread.run_sync(writer.write, chunk):
                yield line
        if line := await to_thread.run_sync(writer.finish):
            yield line
        yield _to_line({"type": "complete"})
    except Exception as error:  # the status is sent: an error line is all that is left
        with suppress(Exception):  # the failure below is the one to report
            await rest.athrow(error)  # what failed here is no reason to pay either
        yield error_line(error)


async def only_error(error: Exception) -> AsyncGenerator[bytes, None]:
    """A stream that failed before it began."""
    yield error_line(error)


def error_line(error: Exception) -> bytes:
    """What ends a stream that failed."""
    shown = to_api_error(error)
    return _to_line({"type": "error", "error": shown.error, "message": shown.message})


def word_list(words: list[TimedWord]) -> list[dict[str, Any]]:
    """Words as every answer shows them."""
    return [SpokenWord.of(word).model_dump() for word in words]


def _to_line(message: dict[str, Any]) -> bytes:
    # json escapes all but ASCII: some clients break lines at U+2028 and its like.
    return json.dumps(message).encode() + b"\n"
