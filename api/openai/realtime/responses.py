"""One response of a Realtime session: the answer of the agent as events, in the order that clients
rely on, and the response object with its usage."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal, Protocol

from api.http.errors import CODED
from api.openai.realtime import server_events
from api.openai.realtime.faults import as_fault
from api.openai.realtime.items import to_wire
from api.openai.realtime.server_events import WireItem, content_part, new_id
from api.openai.realtime.session_object import RealtimeSession
from api.sockets.kernel.conversation import SessionEnded
from models.llm.base import FinishReason
from pipelines.agents.drafts import Draft
from pipelines.agents.held_speech import AgentVoice
from pipelines.agents.items import Item, Part
from pipelines.agents.playback import Playback
from pipelines.agents.response import Answer, AnswerAudio, AnswerCall, AnswerPiece, AnswerText
from pipelines.audio.encode.formats import EncoderFormat
from pipelines.chat.pipeline import Completion
from telemetry import tracing

ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]


@dataclass(frozen=True, slots=True)
class RealtimeUsage:
    """Tokens. All input is text to the language model; the cached tokens are part of it."""

    input_text: int = 0
    output_text: int = 0
    output_audio: int = 0
    cached_text: int = 0

    def as_json(self) -> dict[str, Any]:
        written = self.output_text + self.output_audio
        no_others = {"audio_tokens": 0, "image_tokens": 0}
        return {
            "total_tokens": self.input_text + written,
            "input_tokens": self.input_text,
            "output_tokens": written,
            "input_token_details": {
                "text_tokens": self.input_text,
                "cached_tokens": self.cached_text,
                "cached_tokens_details": {"text_tokens": self.cached_text, **no_others},
                **no_others,
            },
            "output_token_details": {
                "text_tokens": self.output_text,
                "audio_tokens": self.output_audio,
            },
        }


@dataclass(slots=True)
class RealtimeResponse:
    """One answer. `session` has the response's own options applied.

    `conversation_id` is None for a response outside the conversation. `metadata` is shown again
    from `response.created` on: clients match it with their own requests.
    """

    id: str
    session: RealtimeSession
    conversation_id: str | None
    metadata: dict[str, str] | None = None
    status: ResponseStatus = "in_progress"
    status_details: dict[str, Any] | None = None
    output: list[WireItem] = field(default_factory=list)
    usage: RealtimeUsage = RealtimeUsage()

    def end(self, status: ResponseStatus, **details: Any) -> None:
        """`details`: the `reason` of one that is cancelled or incomplete, the `error` of a failed
        one."""
        self.status = status
        self.status_details = {"type": status, **details} if details else None

    def as_json(self) -> dict[str, Any]:
        output = self.session.audio.output
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": self.status,
            "status_details": self.status_details,
            "output": self.output,
            "conversation_id": self.conversation_id,
            "output_modalities": self.session.output_modalities,
            "max_output_tokens": self.session.max_output_tokens,
            "audio": {"output": {"format": output.format.as_json(), "voice": output.voice}},
            # Clients read it from every response that ended, however it ended.
            "usage": None if self.status == "in_progress" else self.usage.as_json(),
            "metadata": self.metadata,
        }


Send = Callable[[str], Awaitable[None]]
Begin = Callable[[], Awaitable[Completion]]
OpenVoice = Callable[[], AbstractAsyncContextManager[AgentVoice]]
CancelReason = Literal["client_cancelled", "turn_detected"]

AUDIO_TOKENS_PER_S = 20  # of output, as OpenAI counts them: one for 50 ms
ENCODERS: dict[str, EncoderFormat] = {
    "audio/pcm": "pcm",
    "audio/pcmu": "mulaw",
    "audio/pcma": "alaw",
}
BYTES_PER_S = {"audio/pcm": 48_000, "audio/pcmu": 8000, "audio/pcma": 8000}


class Host(Protocol):
    """What responses and turns ask of their conversation."""

    @property
    def active(self) -> "ActiveResponse | None":
        """The response of the default conversation that is in progress."""
        ...

    async def send(self, frame: str) -> None: ...

    async def add_item(self, item: Item) -> None:
        """Adds an item that has begun, and sends its event."""

    async def finish_item(self, item: Item) -> None:
        """Sends the event of an item that is whole."""

    async def commit(self, item: Item) -> None:
        """Adds what the user said to the conversation, and sends the events of it."""

    def read_ahead(self, text: str) -> None:
        """The user's turn begins so."""

    def begin_draft(self, text: str) -> Draft | None:
        """The answer to a text of the user that is not certain yet; None where none can be."""

    async def respond(self, draft: Draft | None = None) -> None:
        """Begins a response to the last item, with the draft of it if there is one."""


class ActiveResponse:
    """A response from `response.created` to `response.done`."""

    def __init__(self, send: Send, response: RealtimeResponse, conversation: Host | None) -> None:
        """`conversation` is None for a response out of band."""
        self.response = response
        self.playback = Playback()
        self.spoken: Part | None = None  # while it is spoken
        self.is_announced, self.is_done = asyncio.Event(), asyncio.Event()
        self._send = send
        self._view = response.session  # as this response sees it
        self._conversation = conversation
        self._reason: CancelReason | None = None
        self._work: asyncio.Task[None] | None = None
        self.answer: Answer | None = None
        self._message: Item | None = None
        self._place: tuple[str, str, int, int] | None = None  # of the message's part
        self._calls: dict[int, tuple[Item, tuple[str, str, int, str]]] = {}  # and its place
        self._items: list[Item] = []  # by output index

    async def run(self, begin: Begin, open_voice: OpenVoice) -> None:
        """Sends all events; ends also when it fails or is cancelled. Raises SessionEnded."""
        try:
            with tracing.traced("respond", attributes={"gen_ai.operation.name": "invoke_agent"}):
                await self._work_on(begin, open_voice)
                await self._end()
        finally:
            self._forget_unheard()
            self.is_announced.set()
            self.is_done.set()

    async def _work_on(self, begin: Begin, open_voice: OpenVoice) -> None:
        try:
            await self._send(server_events.response_created(self.response.as_json()))
            self.is_announced.set()
            self._work = asyncio.create_task(self._generate(begin, open_voice), name="answer")
            if self._reason is not None:
                self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work
        except SessionEnded:
            raise
        except CODED as error:
            fault = as_fault(error)
            shown = {"code": fault.code or fault.kind, "message": fault.message}
            self.response.end("failed", error={"type": fault.kind, **shown})
            tracing.annotate({}, error=type(error).__name__)
        finally:
            if self._work is not None and not self._work.done():  # the session ends
                self._work.cancel()

    @property
    def is_interrupted(self) -> bool:
        """Whether the user's speech ended it."""
        return self._reason == "turn_detected"

    def cancel(self, reason: CancelReason) -> None:
        """Stops the answer; `run` then sends its last events."""
        if self._reason is None:
            self._reason = reason
            self.playback.resume()
            if self._work is not None:
                self._work.cancel()

    async def _generate(self, begin: Begin, open_voice: OpenVoice) -> None:
        async with AsyncExitStack() as stack:
            speaks = self._view.speaks
            speaker = await stack.enter_async_context(open_voice()) if speaks else None
            self.answer = Answer(
                await begin(),
                speaker,
                self.playback,
                BYTES_PER_S[self._view.audio.output.format.type],
                is_limited=self._view.max_output_tokens != "inf",
            )
            async with aclosing(self.answer.pieces()) as pieces:
                async for piece in pieces:
                    await self._show(piece)

    async def _show(self, piece: AnswerPiece) -> None:
        match piece:
            case AnswerText(text):
                place, part = await self._open_message()
                part.text += text
                event = server_events.text_delta
                if self._view.speaks:
                    event = server_events.transcript_delta
                await self._send(event(*place, text))
            case AnswerAudio(data, _, words):
                place, part = await self._open_message()
                part.words += words
                # Rounded up, as clients do that truncate the answer at the end of what came.
                part.audio_ms = ceil(self.playback.sent_s * 1000)
                delta = b64encode(data).decode("ascii")
                await self._send(server_events.audio_delta(*place, delta))
            case AnswerCall(delta):
                await self._call(delta)

    async def _open_message(self) -> tuple[tuple[str, str, int, int], Part]:
        if self._message is None or self._place is None:
            part = Part("output_audio" if self._view.speaks else "output_text")
            self.spoken = part
            item = Item(new_id("item"), "message", "assistant", [], "in_progress")
            index = await self._open(item)
            item.parts.append(part)
            self._message = item
            self._place = (self.response.id, item.id, index, 0)
            opened = content_part(self._view.speaks, "")
            await self._send(server_events.part_added(*self._place, opened))
        return self._place, self._message.parts[0]

    async def _open(self, item: Item) -> int:
        index = len(self._items)
        self._items.append(item)
        await self._send(server_events.output_item_added(self.response.id, index, to_wire(item)))
        if self._conversation is not None:
            await self._conversation.add_item(item)
        return index

    async def _call(self, delta: dict[str, object]) -> None:
        function = delta.get("function") or {}
        assert isinstance(function, dict)
        number = int(str(delta.get("index") or 0))
        if number not in self._calls:
            item = Item(
                new_id("item"),
                "function_call",
                "assistant",
                status="in_progress",
                call_id=str(delta.get("id") or new_id("call")),
                name=str(function.get("name") or ""),
            )
            index = await self._open(item)
            self._calls[number] = item, (self.response.id, item.id, index, item.call_id)
        item, place = self._calls[number]
        if text := function.get("arguments"):
            item.arguments += str(text)
            await self._send(server_events.arguments_delta(*place, str(text)))

    async def _end(self) -> None:
        finished = self.answer.finish_reason if self.answer else None
        self._set_status(finished)
        whole = self.response.status == "completed"
        for index, item in enumerate(self._items):
            item.status = "completed" if whole else "incomplete"
            if item is self._message and self._place is not None:
                await self._end_message(self._place, item.parts[0])
            for call, place in self._calls.values():
                if call is item:
                    done = server_events.arguments_done(*place, item.name, item.arguments)
                    await self._send(done)
            await self._send(server_events.output_item_done(self.response.id, index, to_wire(item)))
            if self._conversation is not None:
                await self._conversation.finish_item(item)
        self.response.output = [to_wire(item) for item in self._items]
        self.response.usage = self._usage()
        await self._send(server_events.response_done(self.response.as_json()))

    def _forget_unheard(self) -> None:
        """The model did not say what was not sent, or was not played when the session ended."""
        if self.spoken is None or not self._view.speaks or self.response.status == "completed":
            return
        is_lost = self.response.status == "in_progress"
        played_ms = round(self.playback.played_s * 1000)
        self.spoken.cut(min(played_ms, self.spoken.audio_ms) if is_lost else self.spoken.audio_ms)

    async def _end_message(self, place: tuple[str, str, int, int], part: Part) -> None:
        if self._view.speaks:
            await self._send(server_events.audio_done(*place))
            await self._send(server_events.transcript_done(*place, part.text))
        else:
            await self._send(server_events.text_done(*place, part.text))
        ended = content_part(self._view.speaks, part.text)
        await self._send(server_events.part_done(*place, ended))

    def _set_status(self, finished: FinishReason | None) -> None:
        if self._reason is not None:
            self.response.end("cancelled", reason=self._reason)
        elif self.response.status == "in_progress":
            if finished == "length":
                self.response.end("incomplete", reason="max_output_tokens")
            else:
                self.response.end("completed")

    def _usage(self) -> RealtimeUsage:
        used = self.answer.usage if self.answer else None
        audio_s = self.playback.sent_s
        return RealtimeUsage(
            input_text=used.prompt_tokens if used else 0,
            output_text=used.completion_tokens if used else 0,
            output_audio=round(audio_s * AUDIO_TOKENS_PER_S),
            cached_text=used.cached_tokens if used else 0,
        )
