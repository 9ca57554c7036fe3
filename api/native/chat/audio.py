"""Chat completions with audio: speech of the user as text, and answers that are spoken."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from api.http.errors import ApiError, InvalidField
from api.http.routing import require_scopes
from api.http.uploads import UPLOAD_FOLDERS
from api.native.chat.schemas import (
    AudioOptions,
    AudioReference,
    ChatCompletionBody,
    Message,
    TextPart,
)
from api.openai.responses.items import digits_of, parse_id
from api.openai.speech import PCM_RATE, open_speech_encoder
from api.services import ChatServices, SpeechServices
from models.audio import AudioChunk, pcm16_to_float
from models.llm.base import FinishReason
from models.stt.options import RecognitionOptions
from pipelines.accounts.authentication import Authenticator, Principal
from pipelines.agents.held_speech import HELD_CHARACTERS, AgentVoice, HeldSpeech, hold_speech
from pipelines.agents.playback import Playback
from pipelines.agents.response import Answer, AnswerPiece
from pipelines.audio.encode.encoder import encode
from pipelines.audio.encode.formats import open_encoder
from pipelines.billing.operation import Operation
from pipelines.chat.history import TurnName
from pipelines.chat.pipeline import Completion
from pipelines.temporary_directories import temporary_directory_in_thread
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import SpeechStream
from pipelines.tts.voices import AvailableVoice

EXPIRES_S = 3600  # an id of a saved answer stays valid for at least this long
PREFIX = "audio_"
BYTES_PER_S = 2 * PCM_RATE
TRIPLE = 6  # multiples of it (bytes) are whole samples, and base64 without padding


@dataclass(eq=False, repr=False)
class ChatAudio:
    """The audio of one request: its recordings and references as text, and its voice."""

    _body: ChatCompletionBody
    _principal: Principal
    _operation: Operation
    _speech: SpeechServices
    _chat: ChatServices
    # Decoded recordings, not transcribed yet, by the indices of the message and of the part in it.
    _recordings: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _voice: AvailableVoice | None = None
    _credit: HeldSpeech | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    finish_reason: FinishReason | None = None  # set once an answer was spoken

    def check_scopes(self, authenticator: Authenticator) -> None:
        """Raises ApiError(insufficient_scope) without the scopes that the audio needs."""
        if self._body.recordings:
            require_scopes(authenticator, self._principal, ("stt",), visitors=True)
        if self._body.speaks:
            require_scopes(authenticator, self._principal, ("tts",), visitors=True)
        if self._principal.is_visitor and any(m.audio for m in self._body.messages or ()):
            message = "messages: a browser token cannot name stored answers; send their text"
            raise ApiError("insufficient_scope", message, param="messages")

    async def with_references(self) -> ChatCompletionBody:
        """Returns the body with the text of the answers that it names. Checks what costs nothing:
        references, base64, voice and credit. Raises ApiError or InsufficientCredit."""
        body = self._body
        if body.speaks is not None:
            await self._find_voice(body.speaks, "en")
            billing = self._speech.billing
            workspace_id = self._principal.workspace_id
            await billing.check_credit(workspace_id, "tts", HELD_CHARACTERS, self._operation)
        for place, recording in body.recordings.items():
            try:
                data = await asyncio.to_thread(b64decode, recording.data, validate=True)
            except ValueError:
                text = "must be base64"
                raise InvalidField("messages.content.input_audio.data", text) from None
            self._recordings[place] = data
        messages = body.messages or []
        turns = {message.audio.id: _turn_of(message.audio) for message in messages if message.audio}
        answers = await self._chat.history.answers(
            self._principal.workspace_id, {turn for turn in turns.values() if turn}
        )

        def resolved(message: Message) -> Message:
            if message.audio is None or message.content:
                return message
            turn = turns[message.audio.id]
            if turn is None or turn not in answers:
                text = "messages: audio.id names no saved answer; send its transcript as content"
                raise ApiError("not_found", text, param="messages")
            return message.model_copy(update={"content": answers[turn].text})

        self._body = body.model_copy(update={"messages": [resolved(m) for m in messages]})
        return self._body

    async def transcribed(self) -> ChatCompletionBody:
        """Returns the body with text in place of recordings, and finds the voice of the answer.
        Each recording is charged as a transcription. Raises as `PaidTranscription.transcribe`."""
        body = self._body
        messages = [
            await self._with_text(number, message)
            for number, message in enumerate(body.messages or ())
        ]
        if body.speaks is not None:
            users = [message.content for message in messages if message.role == "user"]
            text = str(users[-1]) if users else ""
            directory = self._speech.synthesis.pipeline.directory
            language = await directory.language_of(text, self._principal.workspace_id)
            self._voice = await self._find_voice(body.speaks, language)
        return body.model_copy(update={"messages": messages})

    async def _with_text(self, number: int, message: Message) -> Message:
        if not isinstance(message.content, list):
            return message
        texts = [
            part.text if isinstance(part, TextPart) else await self._transcribe((number, place))
            for place, part in enumerate(message.content)
        ]
        return message.model_copy(update={"content": "\n".join(texts)})

    async def _transcribe(self, place: tuple[int, int]) -> str:
        async with temporary_directory_in_thread(UPLOAD_FOLDERS) as folder:
            path = folder / "0"
            await asyncio.to_thread(path.write_bytes, self._recordings.pop(place))
            return await self._speech.transcription.transcribe(
                self._principal.workspace_id,
                self._operation,
                path,
                RecognitionOptions(),
                lambda transcript: transcript.text,
            )

    async def _find_voice(self, options: AudioOptions, language: str) -> AvailableVoice:
        return await self._speech.openai.find_voice(
            options.voice,
            tier=None,
            workspace_id=self._principal.workspace_id,
            language=language,
            field="audio.voice",
        )

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Holds the price of the speech, and charges for the speech that was taken. Raises
        InsufficientCredit or DatabaseUnavailable."""
        workspace_id = self._principal.workspace_id
        async with hold_speech(self._speech.synthesis, workspace_id, self._operation) as held:
            self._credit = held
            yield

    def keep(self, stack: AsyncExitStack) -> None:
        """Takes over the resources of a stream; `pieces` closes them."""
        self._stack = stack

    async def aclose(self) -> None:
        """Closes the resources of a stream whose client left before the first piece."""
        await self._stack.__aexit__(GeneratorExit, GeneratorExit(), None)

    async def pieces(
        self, completion: Completion, *, is_whole: bool = False
    ) -> AsyncGenerator[AnswerPiece, None]:
        """Yields the answer in 16-bit samples at PCM_RATE, and ends once the turn is saved; its
        price must be `held`. With `is_whole`, nothing counts as sent before the end."""
        assert self._voice is not None and self._credit is not None
        held = self._credit
        stream = SpeechStream(
            synthesis=held,
            workspace_id=self._principal.workspace_id,
            voice=self._voice,
            style=SpeechRequest(text="", timings=True, takes_ssml=False),
            make_encoder=partial(open_encoder, "pcm", PCM_RATE),
            operation=held.payer,
        )
        at_once = Playback(lead_s=inf)  # a client plays nothing before it has the whole answer
        answer = Answer(
            completion, AgentVoice(stream, held), at_once, BYTES_PER_S, is_whole=is_whole
        )
        try:
            async with self._stack, aclosing(answer.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
                self.finish_reason = answer.finish_reason
        finally:
            await completion.aclose()  # has an effect only if nothing was read
        await completion.wait_until_saved()


class AudioDeltas:
    """Writes the speech of a streamed answer as `delta.audio`."""

    def __init__(self, completion: Completion) -> None:
        self._rest = b""
        self._id: dict[str, Any] = {"id": audio_id(completion)}
        self._expires_at = expires_at(completion)

    def text(self, text: str) -> dict[str, Any]:
        return self._first() | {"transcript": text}

    def audio(self, data: bytes) -> dict[str, Any] | None:
        data = self._rest + data
        size = len(data) // TRIPLE * TRIPLE
        self._rest = data[size:]
        return self._first() | {"data": _base64(data[:size])} if size else None

    def end(self) -> list[dict[str, Any]]:
        if self._id:
            return []  # nothing was spoken
        last = [{"data": _base64(self._rest)}] if self._rest else []
        return [*last, {"expires_at": self._expires_at}]

    def _first(self) -> dict[str, Any]:
        first = self._id
        self._id = {}
        return first


def audio_id(completion: Completion) -> str:
    return PREFIX + digits_of(completion)


def expires_at(completion: Completion) -> int:
    """Returns the time (Unix seconds) until which the id is sure to name the answer."""
    return completion.created + (EXPIRES_S if completion.chat_id is not None else 0)


def whole_audio(
    completion: Completion, options: AudioOptions, transcript: str, pcm: bytes
) -> dict[str, Any]:
    """Makes the `audio` of a whole answer; blocking. `pcm` has 16-bit samples at PCM_RATE."""
    chunk = AudioChunk(pcm16_to_float(pcm), PCM_RATE)
    match options.format:
        case "pcm16":
            data = pcm
        case "aac":
            encoder = open_speech_encoder("aac", PCM_RATE)
            data = b"".join([*encoder.encode(chunk), *encoder.flush()])
        case _:
            name = "ogg" if options.format == "opus" else options.format
            file = encode(chunk, name).file
            data = b"".join(file.blocks(1 << 20))
            file.close()
    return {
        "id": audio_id(completion),
        "data": _base64(data),
        "transcript": transcript,
        "expires_at": expires_at(completion),
    }


def _turn_of(reference: AudioReference) -> TurnName | None:
    """Returns the turn of a spoken answer's id; None for any other text."""
    named = parse_id(reference.id.replace(PREFIX, "msg_", 1))
    return named[1] if named is not None and reference.id.startswith(PREFIX) else None


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
