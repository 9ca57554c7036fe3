"""Speech for HTTP routes of dialects: formats, writers, letter times, and stand-in voices."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from api.callers import Caller
from api.http.errors import ApiError, InvalidField, to_api_error
from api.http.routing import name_gaps
from api.http.streaming import CutShort, FrameWriter, StreamedResponse, encode_frames
from models.base import VoiceGender
from pipelines.audio.encode.encoder import AudioEncoder, write_wav_length
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.errors import StorageUnavailable, VoiceNotFound, VoiceNotReady
from pipelines.temporary_files import TemporaryFile
from pipelines.tts.session import EncodedChunk, SpeechStream
from pipelines.tts.shaping import SpokenChunk, TimedWord
from pipelines.tts.voices import AvailableVoice

PLAIN = "Conversational"  # category of all voices but those that whisper, act or sound synthetic


@dataclass(frozen=True, slots=True)
class ForeignVoice:
    """What the name of another API's voice reveals about that voice."""

    name: str
    language: str  # ISO 639-1
    gender: VoiceGender
    is_multilingual: bool = False  # whether it speaks the language of each text


async def voice_for(
    wanted: str, foreign: ForeignVoice | None, caller: Caller, field: str = "model"
) -> AvailableVoice:
    """Finds a voice by name or id. A `foreign` name means a custom voice of the workspace with that
    name, or else a stand-in. Errors name `field`. Raises VoiceNotFound, VoiceNotReady, EngineLost
    or DatabaseUnavailable."""
    if foreign is None:
        return await caller.directory.find_named(wanted, caller.workspace_id, field)
    with suppress(VoiceNotReady):
        custom_voice = await caller.directory.find_custom(caller.workspace_id, wanted)
        if custom_voice is not None and custom_voice.is_of(caller.workspace_id):
            return custom_voice
    directory = caller.directory
    voices = await directory.voices()
    language = foreign.language
    if directory.awaits_default(language) and all(language != voice.language for voice in voices):
        return directory.default(language, voices)
    return directory.makeshift(stand_in(foreign, voices))


def stand_in(foreign: ForeignVoice, voices: Sequence[AvailableVoice]) -> AvailableVoice:
    """Picks a voice of the language; if possible, of the same gender and for conversations. A name
    always gets the same voice, and different names mostly different ones. Raises VoiceNotFound."""
    speaking = [voice for voice in voices if voice.language == foreign.language]
    candidates = [voice for voice in speaking if voice.info.gender == foreign.gender] or speaking
    if not candidates:
        raise VoiceNotFound(f"no voice speaks {foreign.language}; GET /default-voices lists all")
    candidates = [voice for voice in candidates if PLAIN in voice.info.categories] or candidates
    candidates.sort(key=lambda voice: voice.id)
    voice = candidates[zlib.crc32(foreign.name.encode()) % len(candidates)]
    return replace(voice, is_stand_in=foreign.is_multilingual)


Letter = tuple[str, float, float]
"""A letter, with its start and end in seconds."""


@dataclass(frozen=True, slots=True)
class SpeechOutput:
    """An audio format of a dialect."""

    encoder: EncoderFormat
    media_type: str
    rates: tuple[int, ...]  # allowed sample rates (Hz); the first is the default
    bit_rates: Sequence[int] = ()  # allowed bit rates (bit/s), ascending

    def opener(
        self, sample_rate: int | None = None, bit_rate: int | None = None
    ) -> Callable[[], AudioEncoder]:
        """Returns a function that opens encoders with a sample rate (Hz) and a bit rate (bit/s).
        Raises ApiError(validation_error) for rates that the format does not allow."""
        rate = sample_rate or self.rates[0]
        if rate not in self.rates:
            rates = ", ".join(map(str, self.rates))
            raise InvalidField("sample_rate", f"may be {rates} in this format")
        if bit_rate is not None and bit_rate not in self.bit_rates:
            limits = f"may be {self.bit_rates[0]} to {self.bit_rates[-1]}" if self.bit_rates else ""
            raise InvalidField("bit_rate", limits or "this format has none")
        return partial(open_encoder, self.encoder, rate, bit_rate)


class CutOff:
    """Base class of audio writers: audio cannot carry an error, so a failed stream is cut off."""

    def fail(self, error: Exception) -> bytes:
        raise CutShort(to_api_error(error).code) from None


class BytesWriter(CutOff):
    """Encodes speech to the bytes of one file."""

    def __init__(self, open_for: Callable[[int], AudioEncoder]) -> None:
        """Encodes with the encoder that `open_for` opens for a sample rate (Hz)."""
        self._open_for = open_for
        self._encoder: AudioEncoder | None = None

    def write(self, chunk: SpokenChunk) -> bytes:
        if self._encoder is None:
            self._encoder = self._open_for(chunk.audio.sample_rate)
        return b"".join(self._encoder.encode(chunk.audio))

    def finish(self) -> list[bytes]:
        return [] if self._encoder is None else self._encoder.flush()


async def speak_whole(
    stream: SpeechStream,
    text: str,
    *,
    is_wav: bool,
    head: bytes = b"",
    copy_to: Callable[[bytes], object] | None = None,
) -> tuple[TemporaryFile, list[TimedWord]]:
    """Speaks a text; returns a file of `head` and the audio, and the words. `copy_to` also gets
    the audio. The length is written into a WAV header. Raises the errors of `SpeechStream.speak`,
    StorageUnavailable, or ApiError(validation_error) if nothing can be spoken."""
    file = TemporaryFile()
    file.write(head)
    words: list[TimedWord] = []
    async with aclosing(stream.speak(text, early_start=False)) as chunks:
        async for chunk in chunks:
            try:
                file.write(chunk.data)
            except StorageUnavailable as error:
                await chunks.athrow(error)  # a failure in the generator is not charged
            if copy_to is not None:
                copy_to(chunk.data)
            words += chunk.words or ()
    if file.size == len(head):
        raise nothing_spoken()
    if is_wav:
        write_wav_length(file)
    return file, words


class AudioWriter(CutOff):
    """Writes audio that is already encoded, without a change."""

    def write(self, chunk: EncodedChunk) -> bytes:
        return chunk.data

    def finish(self) -> list[bytes]:
        return []


async def stream_speech(
    stream: SpeechStream,
    text: str,
    writer: FrameWriter[EncodedChunk],
    answer: type[StreamedResponse] = StreamedResponse,
    media_type: str | None = None,
) -> StreamedResponse:
    """Returns an answer that streams speech, once the first audio is there. Raises the errors of
    `SpeechStream.speak`, or ApiError(validation_error) if the text has nothing to speak."""
    chunks = stream.speak(text)
    first = await anext(chunks, None)  # an error before the first chunk sets the HTTP status
    if first is None:
        raise nothing_spoken()
    streamed = answer(encode_frames(first, chunks, writer), chunks, media_type)
    name_gaps(streamed, stream)
    return streamed


def nothing_spoken() -> ApiError:
    message = "text must have a letter or a digit: nothing in it can be spoken"
    return ApiError("validation_error", message, param="text")


def audio_answers(media_types: Iterable[str], description: str | None = None) -> dict[str, Any]:
    """Returns arguments of a route's decorator that document audio of one of the media types."""
    audio = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    answer: dict[str, Any] = {"content": dict.fromkeys(media_types, audio)}
    if description is not None:
        answer["description"] = description
    return {"response_class": Response, "responses": {200: answer}}


def letters_of(words: Iterable[TimedWord], space: str = " ", from_s: float = 0.0) -> list[Letter]:
    """Splits words into letters, among which the time of a word is divided equally. Times count
    from `from_s`. Each word is followed by `space`, which has no duration."""
    letters: list[Letter] = []
    for word in words:
        if word.mark:
            continue
        start_s = word.start_s - from_s
        end_s = word.end_s - from_s
        step = (end_s - start_s) / len(word.word)
        for place, letter in enumerate(word.word):
            letters.append((letter, start_s + step * place, start_s + step * (place + 1)))
        letters += [(space, end_s, end_s)] if space else []
    return letters


def columns(spans: Sequence[Letter], text: str, start: str, end: str) -> dict[str, Any]:
    """Returns letters or words, and their times in seconds, as three lists under given names."""
    return {
        text: [letter for letter, _, _ in spans],
        start: [round(start_s, 3) for _, start_s, _ in spans],
        end: [round(end_s, 3) for _, _, end_s in spans],
    }
