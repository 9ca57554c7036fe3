"""Speech in the voices and formats that a dialect names, as one response, and the times of its
letters."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response

from api.http.errors import ApiError, InvalidField, to_api_error
from api.http.ignored_fields import name_unread
from api.http.streaming import CutShort, FrameWriter, StreamedResponse, encode_frames
from models.base import VoiceGender
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.errors import StorageUnavailable, VoiceNotFound, VoiceNotReady
from pipelines.tts.session import EncodedChunk, SpeechStream
from pipelines.tts.shaping import SpokenChunk, TimedWord
from pipelines.tts.voices import AvailableVoice, VoiceDirectory

PLAIN = "Conversational"  # the category that those who whisper, act or sound synthetic lack


@dataclass(frozen=True, slots=True)
class ForeignVoice:
    """What is known of a voice of another API."""

    name: str
    language: str  # ISO 639-1
    gender: VoiceGender


async def voice_for(
    wanted: str,
    foreign: ForeignVoice | None,
    directory: VoiceDirectory,
    workspace_id: int,
    field: str = "model",
) -> AvailableVoice:
    """The voice of that name or id; a stand-in where it is the name of a `foreign` one.

    A custom voice of the workspace comes first. `field` is what the request names it. Raises
    VoiceNotFound, VoiceNotReady, EngineLost or DatabaseUnavailable.
    """
    if foreign is None:
        return await directory.find_named(wanted, workspace_id, field)
    with suppress(VoiceNotReady):
        own = await directory.find_custom(workspace_id, wanted)
        if own is not None and own.is_of(workspace_id):
            return own
    return stand_in(foreign, await directory.voices())


def stand_in(foreign: ForeignVoice, offered: Sequence[AvailableVoice]) -> AvailableVoice:
    """One of its language, and of its gender if there is any, of these one for conversations if
    there is any: always the same one for a name, and mostly different ones for different names.
    Raises VoiceNotFound."""
    speaking = [one for one in offered if one.language == foreign.language]
    alike = [one for one in speaking if one.info.gender == foreign.gender] or speaking
    if not alike:
        raise VoiceNotFound(f"no voice speaks {foreign.language}; GET /default-voices lists all")
    alike = [one for one in alike if PLAIN in one.info.categories] or alike
    alike.sort(key=lambda one: one.id)
    return alike[zlib.crc32(foreign.name.encode()) % len(alike)]


Letter = tuple[str, float, float]
"""With its start and end in seconds."""


@dataclass(frozen=True, slots=True)
class SpeechOutput:
    """A format of a dialect."""

    encoder: EncoderFormat
    media_type: str
    rates: tuple[int, ...]  # Hz that clients may ask for; the first is the default
    bit_rates: Sequence[int] = ()  # that they may ask for

    def opener(
        self, sample_rate: int | None = None, bit_rate: int | None = None
    ) -> Callable[[], AudioEncoder]:
        """Opens encoders. Raises ApiError(validation_error) for what the format does not have."""
        rate = sample_rate or self.rates[0]
        if rate not in self.rates:
            rates = ", ".join(map(str, self.rates))
            raise InvalidField("sample_rate", f"may be {rates} in this format")
        if bit_rate is not None and bit_rate not in self.bit_rates:
            some = f"may be {self.bit_rates[0]} to {self.bit_rates[-1]}" if self.bit_rates else ""
            raise InvalidField("bit_rate", some or "this format has none")
        return partial(open_encoder, self.encoder, rate, bit_rate)


class BytesWriter:
    """Writes one file in pieces."""

    def __init__(self, open_for: Callable[[int], AudioEncoder]) -> None:
        """`open_for` gets the sample rate of the speech, Hz."""
        self._open_for = open_for
        self._encoder: AudioEncoder | None = None

    def write(self, chunk: SpokenChunk) -> bytes:
        if self._encoder is None:
            self._encoder = self._open_for(chunk.audio.sample_rate)
        return b"".join(self._encoder.encode(chunk.audio))

    def finish(self) -> list[bytes]:
        return [] if self._encoder is None else self._encoder.flush()

    def fail(self, error: Exception) -> bytes:
        raise CutShort(to_api_error(error).code) from None


async def speak_whole(
    stream: SpeechStream, text: str, add: Callable[[bytes], object]
) -> list[TimedWord]:
    """Gives all audio of a text to `add`, which may raise StorageUnavailable; its words.

    Raises as `SpeechStream.speak`.
    """
    words: list[TimedWord] = []
    async with aclosing(stream.speak(text, early_start=False)) as chunks:
        async for chunk in chunks:
            try:
                add(chunk.data)
            except StorageUnavailable as error:
                await chunks.athrow(error)  # so that it is not charged
            words += chunk.words or ()
    return words


class AudioWriter:
    """Writes the file itself."""

    def write(self, chunk: EncodedChunk) -> bytes:
        return chunk.data

    def finish(self) -> list[bytes]:
        return []

    def fail(self, error: Exception) -> bytes:
        raise CutShort(to_api_error(error).code) from None


async def stream_speech(
    stream: SpeechStream,
    text: str,
    writer: FrameWriter[EncodedChunk],
    answer: type[StreamedResponse] = StreamedResponse,
    media_type: str | None = None,
) -> StreamedResponse:
    """An answer that begins with the first audio. Raises as `SpeechStream.speak`, or
    ApiError(validation_error) where nothing can be spoken."""
    chunks = stream.speak(text)
    first = await anext(chunks, None)  # an error before the first chunk sets the HTTP status
    if first is None:
        raise nothing_spoken()
    streamed = answer(encode_frames(first, chunks, writer), chunks, media_type)
    name_unread(streamed, stream.unread)
    return streamed


def nothing_spoken() -> ApiError:
    """A text without anything that can be spoken."""
    message = "text must have a letter or a digit: nothing in it can be spoken"
    return ApiError("validation_error", message, param="text")


def audio_answers(media_types: Iterable[str], description: str | None = None) -> dict[str, Any]:
    """Documents a route whose answer is audio of one of the media types, for its decorator."""
    audio = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    answer: dict[str, Any] = {"content": dict.fromkeys(media_types, audio)}
    if description is not None:
        answer["description"] = description
    return {"response_class": Response, "responses": {200: answer}}


def letters_of(words: Iterable[TimedWord], space: str = " ", from_s: float = 0.0) -> list[Letter]:
    """The letters of a word share its time, which counts from `from_s`; a `space` without any
    follows."""
    letters: list[Letter] = []
    for one in words:
        if one.mark:
            continue
        start_s, end_s = one.start_s - from_s, one.end_s - from_s
        step = (end_s - start_s) / len(one.word)
        for place, letter in enumerate(one.word):
            letters.append((letter, start_s + step * place, start_s + step * (place + 1)))
        letters += [(space, end_s, end_s)] if space else []
    return letters


def columns(spans: Sequence[Letter], text: str, start: str, end: str) -> dict[str, Any]:
    """Letters or words as three lists, under the names of a dialect; times in seconds."""
    return {
        text: [letter for letter, _, _ in spans],
        start: [round(start_s, 3) for _, start_s, _ in spans],
        end: [round(end_s, 3) for _, _, end_s in spans],
    }
