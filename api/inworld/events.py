"""What clients of Inworld's text-to-speech API are sent on the socket and over HTTP."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from api.inworld.messages import Create, Voicing
from pipelines.tts.chunks import TimedWord
from pipelines.tts.context_voice import EncodedChunk

# Of google.rpc.Code.
INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED = 3, 5, 6, 8
ABORTED, INTERNAL = 10, 13
# What HTTP statuses are as such codes. Not found is for contexts alone: clients pass over it.
_CODES = {400: INVALID_ARGUMENT, 403: 7, 404: INVALID_ARGUMENT, 429: RESOURCE_EXHAUSTED, 503: 14}


class RpcStatus(BaseModel):
    """Zero is success."""

    code: int = 0
    message: str = ""
    details: list[Any] = Field(default_factory=list)


class ContextEvent(BaseModel):
    """One event, which is beside the id of its context."""

    result: dict[str, Any]


def code_of(status: int) -> int:
    """The code for a status of HTTP."""
    return _CODES.get(status, INTERNAL)


def failure(message: str, code: int, context_id: str | None = None) -> ContextEvent:
    """An error, of a context where one is known."""
    status = RpcStatus(code=code, message=message).model_dump()
    named = {} if context_id is None else {"contextId": context_id}
    return ContextEvent(result={**named, "status": status})


def context_event(context_id: str, name: str, body: dict[str, Any]) -> ContextEvent:
    """An event that is no error."""
    return ContextEvent(
        result={"contextId": context_id, name: body, "status": RpcStatus().model_dump()}
    )


def description(create: Create, model_id: str) -> dict[str, Any]:
    """What a context was really made with: `modelId` is the model that speaks."""
    return {
        "voiceId": create.voice_id,
        "modelId": model_id,
        "audioConfig": create.audio_config.model_dump(by_alias=True),
        "temperature": create.temperature,
        "timestampType": create.timestamp_type,
        "autoMode": create.auto_mode,
        "maxBufferDelayMs": create.max_buffer_delay_ms,
        "bufferCharThreshold": create.buffer_char_threshold,
    }


class Alignment:
    """When words or letters sound, counted from the start of each flush.

    Clients add up the ends of flushes, which they know from the end of the last word alone. So
    that one waits for the end of its flush, and lasts as long as the audio does.
    """

    def __init__(self, voicing: Voicing) -> None:
        self._by_letter = voicing.timestamp_type == "CHARACTER"
        self._waits = voicing.timestamp_transport_strategy != "SYNC"
        self._began_s = 0.0
        self._last: tuple[TimedWord, ...] = ()

    def of(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        """The `timestampInfo` of these words, but for the last one."""
        known = (*self._last, *words)
        if self._waits and known:
            known, self._last = known[:-1], known[-1:]
        return self._info(known)

    def rest(self, spoken_s: float) -> dict[str, Any] | None:
        """That of the last word of a flush, after which there are `spoken_s` of audio in all."""
        last = [replace(word, end_s=max(word.end_s, spoken_s)) for word in self._last]
        self._last = ()
        info = self._info(last)
        self._began_s = spoken_s
        return info

    def whole(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        """That of a text whose audio comes at once."""
        return self._info(words)

    def _info(self, words: Sequence[TimedWord]) -> dict[str, Any] | None:
        if not words:
            return None
        spans = [
            (word.word, word.start_s - self._began_s, word.end_s - self._began_s) for word in words
        ]
        if self._by_letter:
            letters = [letter for span in spans for letter in _letters(*span)]
            return {"characterAlignment": _columns("character", letters)}
        return {"wordAlignment": _columns("word", spans)}


def _letters(word: str, start_s: float, end_s: float) -> list[tuple[str, float, float]]:
    """The letters of a word share its time; a space without any follows."""
    step = (end_s - start_s) / len(word)
    letters = [
        (letter, start_s + step * place, start_s + step * (place + 1))
        for place, letter in enumerate(word)
    ]
    return [*letters, (" ", end_s, end_s)]


def _columns(name: str, spans: Sequence[tuple[str, float, float]]) -> dict[str, Any]:
    return {
        f"{name}s": [text for text, _, _ in spans],
        f"{name}StartTimeSeconds": [round(start, 3) for _, start, _ in spans],
        f"{name}EndTimeSeconds": [round(end, 3) for _, _, end in spans],
    }


class InworldWire:
    """How the events of one context are written."""

    def __init__(self, context_id: str, create: Create) -> None:
        self._context_id = context_id
        self._alignment = Alignment(create)

    def audio(self, chunk: EncodedChunk) -> ContextEvent:
        return self._chunk(chunk.data, self._alignment.of(chunk.words or ()))

    def rest(self, spoken_s: float) -> ContextEvent | None:
        timing = self._alignment.rest(spoken_s)
        return None if timing is None else self._chunk(b"", timing)

    def flushed(self) -> ContextEvent:
        return context_event(self._context_id, "flushCompleted", {})

    def closed(self) -> ContextEvent:
        return context_event(self._context_id, "contextClosed", {})

    def error(self, message: str, status: int = 400) -> ContextEvent:
        return failure(message, code_of(status), self._context_id)

    def _chunk(self, data: bytes, timing: dict[str, Any] | None) -> ContextEvent:
        return context_event(self._context_id, "audioChunk", audio_body(data, timing))


def audio_body(data: bytes, timing: dict[str, Any] | None) -> dict[str, Any]:
    """Base64 audio, with `timestampInfo` where there is some."""
    body: dict[str, Any] = {"audioContent": b64encode(data).decode("ascii")}
    return body if timing is None else body | {"timestampInfo": timing}
