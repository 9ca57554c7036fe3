"""The responses of a Realtime session: the agent's answers as events, and their usage."""

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, Literal

from api.http.errors import CODED
from api.http.limits import require_request
from api.openai.realtime import server_events as events
from api.openai.realtime.agent import Agent
from api.openai.realtime.faults import RealtimeFault, as_fault
from api.openai.realtime.items import AnyItem, ItemFeed, ItemReference, from_wire, to_wire
from api.openai.realtime.server_events import OutputEvent, Send, WireItem, new_id
from api.openai.realtime.session_object import RealtimeSession, ResponseOptions
from api.openai.realtime.turns import UserTurns
from api.sockets.kernel.conversation import SessionEnded
from models.errors import EngineError
from models.llm.base import TokenUsage
from pipelines.agents.held_speech import AgentVoice
from pipelines.agents.interruption import text_between
from pipelines.agents.items import Item, Part
from pipelines.agents.pace import WritingPace
from pipelines.agents.playback import Playback
from pipelines.agents.response import Answer, AnswerAudio, AnswerCall, AnswerPiece, AnswerText
from pipelines.chat.pipeline import Completion
from telemetry import tracing

ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]


def usage_json(text: TokenUsage, audio_tokens: int) -> dict[str, Any]:
    """Returns the tokens of a response. The model reads only text, so all input tokens are text."""
    output_tokens = text.completion_tokens + audio_tokens
    no_others = {"audio_tokens": 0, "image_tokens": 0}
    return {
        "total_tokens": text.prompt_tokens + output_tokens,
        "input_tokens": text.prompt_tokens,
        "output_tokens": output_tokens,
        "input_token_details": {
            "text_tokens": text.prompt_tokens,
            "cached_tokens": text.cached_tokens,
            "cached_tokens_details": {"text_tokens": text.cached_tokens, **no_others},
            **no_others,
        },
        "output_token_details": {
            "text_tokens": text.completion_tokens,
            "audio_tokens": audio_tokens,
        },
    }


@dataclass(slots=True)
class RealtimeResponse:
    """One answer, with the session as changed for it. `conversation_id` is None outside the
    conversation. Clients match responses with requests by `metadata`."""

    id: str
    session: RealtimeSession
    conversation_id: str | None
    metadata: dict[str, str] | None = None
    status: ResponseStatus = "in_progress"
    status_details: dict[str, Any] | None = None
    output: list[WireItem] = field(default_factory=list)
    usage: dict[str, Any] | None = None  # clients read it in every response that has ended

    def end(self, status: ResponseStatus, **details: Any) -> None:
        """Sets the final status; `details` are its `reason`, or the `error` of a failure."""
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
            "usage": self.usage,
            "metadata": self.metadata,
        }


Begin = Callable[[], Awaitable[Completion]]
OpenVoice = Callable[[], AbstractAsyncContextManager[AgentVoice]]
CancelReason = Literal["client_cancelled", "turn_detected"]

AUDIO_TOKENS_PER_S = 20  # output tokens, as OpenAI counts them: one per 50 ms
BYTES_PER_S = {"audio/pcm": 48_000, "audio/pcmu": 8000, "audio/pcma": 8000}
ECHO_S = 8.0  # the agent's last seconds of speech, which a microphone may pick up
PARALLEL_RESPONSES = 4  # including the one in the conversation


@dataclass(slots=True, eq=False)
class OutputItem:
    """An item of a response, with its index in the response's output."""

    response_id: str
    index: int
    item: Item

    def event(self, kind: type[OutputEvent], **fields: Any) -> OutputEvent:
        """Creates an event about the item; `fields` are the fields of that kind of event."""
        return kind(
            response_id=self.response_id, item_id=self.item.id, output_index=self.index, **fields
        )


@dataclass(eq=False, repr=False)
class ActiveResponse:
    """A response from `response.created` to `response.done`."""

    response: RealtimeResponse
    _send: Send
    _feed: ItemFeed | None  # None for a response outside the conversation
    _pace: WritingPace
    playback: Playback = field(default_factory=Playback)
    is_announced: asyncio.Event = field(default_factory=asyncio.Event)
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Answer | None = None
    _reason: CancelReason | None = None
    _work: asyncio.Task[None] | None = None
    _spoken: Part | None = None  # the text or speech of the message
    _output: list[OutputItem] = field(default_factory=list)
    _message: OutputItem | None = None
    _calls: dict[int, OutputItem] = field(default_factory=dict)  # by the model's index

    async def run(self, begin: Begin, open_voice: OpenVoice) -> None:
        """Generates the answer, and always sends all events. Raises SessionEnded."""
        try:
            with tracing.traced("respond", attributes={"gen_ai.operation.name": "invoke_agent"}):
                await self._work_on(begin, open_voice)
                await self._end()
        finally:
            self._forget_unheard()
            self.is_announced.set()
            self.is_done.set()

    @property
    def is_interrupted(self) -> bool:
        """Whether the user's speech cancelled the response."""
        return self._reason == "turn_detected"

    @property
    def _session(self) -> RealtimeSession:
        return self.response.session

    def cancel(self, reason: CancelReason) -> None:
        """Stops the answer; `run` then sends its last events."""
        if self._reason is None:
            self._reason = reason
            self.playback.resume()
            if self._work is not None:
                self._work.cancel()

    def last_words(self) -> str:
        """Returns the words of the last ECHO_S seconds of audio sent."""
        if self._spoken is None:
            return ""
        until_s = self.playback.sent_s
        words = ((word.word, word.start_s, word.end_s) for word in self._spoken.words)
        return text_between(words, until_s - ECHO_S, until_s) or self._spoken.text[-200:]

    async def _work_on(self, begin: Begin, open_voice: OpenVoice) -> None:
        try:
            await self._send(events.ResponseCreated(response=self.response.as_json()))
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
            code = fault.code or fault.kind
            details = {"type": fault.kind, "code": code, "message": fault.message}
            self.response.end("failed", error=details)
            tracing.annotate({}, error=type(error).__name__)
        finally:
            if self._work is not None and not self._work.done():  # the session ends
                self._work.cancel()

    async def _generate(self, begin: Begin, open_voice: OpenVoice) -> None:
        async with AsyncExitStack() as stack:
            speaks = self._session.speaks
            speaker = await stack.enter_async_context(open_voice()) if speaks else None
            self.answer = Answer(
                await begin(),
                speaker,
                self.playback,
                BYTES_PER_S[self._session.audio.output.format.type],
                pace=self._pace,
                is_limited=self._session.max_output_tokens != "inf",
            )
            async with aclosing(self.answer.pieces()) as pieces:
                async for piece in pieces:
                    await self._show(piece)

    async def _show(self, piece: AnswerPiece) -> None:
        match piece:
            case AnswerText(text):
                message = await self._open_message()
                message.item.parts[0].text += text
                kind = events.TranscriptDelta if self._session.speaks else events.TextDelta
                await self._send(message.event(kind, delta=text))
            case AnswerAudio(data, _, words):
                message = await self._open_message()
                part = message.item.parts[0]
                part.words += words
                # Rounded up, so that a client may truncate at the end of the audio it received.
                part.audio_ms = ceil(self.playback.sent_s * 1000)
                await self._send(
                    message.event(events.AudioDelta, delta=b64encode(data).decode("ascii"))
                )
            case AnswerCall(delta):
                await self._call(delta)

    async def _open_message(self) -> OutputItem:
        if self._message is None:
            part = Part("output_audio" if self._session.speaks else "output_text")
            self._spoken = part
            item = Item(new_id("item"), "message", "assistant", [], "in_progress")
            message = await self._open(item)
            item.parts.append(part)
            self._message = message
            await self._send(message.event(events.PartAdded, part=self._part("")))
        return self._message

    async def _open(self, item: Item) -> OutputItem:
        output = OutputItem(self.response.id, len(self._output), item)
        self._output.append(output)
        await self._send_item(events.OutputItemAdded, output)
        if self._feed is not None:
            await self._feed.begin(item)
        return output

    async def _send_item(
        self, kind: type[events.OutputItemAdded | events.OutputItemDone], output: OutputItem
    ) -> None:
        item = to_wire(output.item)
        await self._send(kind(response_id=output.response_id, output_index=output.index, item=item))

    async def _call(self, delta: dict[str, Any]) -> None:
        function = delta["function"]
        number = delta["index"]
        if number not in self._calls:
            item = Item(
                new_id("item"),
                "function_call",
                "assistant",
                status="in_progress",
                call_id=delta["id"],
                name=function["name"],
            )
            self._calls[number] = await self._open(item)
        call = self._calls[number]
        if text := function.get("arguments"):
            call.item.arguments += text
            await self._send(
                call.event(events.ArgumentsDelta, call_id=call.item.call_id, delta=text)
            )

    async def _end(self) -> None:
        if self._reason is not None:
            self.response.end("cancelled", reason=self._reason)
        elif self.response.status == "in_progress":  # it did not fail
            if self.answer is not None and self.answer.finish_reason == "length":
                self.response.end("incomplete", reason="max_output_tokens")
            else:
                self.response.end("completed")
        is_whole = self.response.status == "completed"
        for output in self._output:
            item = output.item
            item.status = "completed" if is_whole else "incomplete"
            if output is self._message:
                await self._end_message(output)
            elif output in self._calls.values():
                await self._send(
                    output.event(
                        events.ArgumentsDone,
                        call_id=item.call_id,
                        name=item.name,
                        arguments=item.arguments,
                    )
                )
            await self._send_item(events.OutputItemDone, output)
            if self._feed is not None:
                await self._feed.finish(item)
        self.response.output = [to_wire(output.item) for output in self._output]
        usage = self.answer.usage if self.answer else None
        audio_tokens = round(self.playback.sent_s * AUDIO_TOKENS_PER_S)
        self.response.usage = usage_json(usage or TokenUsage(0, 0), audio_tokens)
        await self._send(events.ResponseDone(response=self.response.as_json()))

    async def _end_message(self, message: OutputItem) -> None:
        text = message.item.parts[0].text
        if self._session.speaks:
            await self._send(message.event(events.AudioDone))
            await self._send(message.event(events.TranscriptDone, transcript=text))
        else:
            await self._send(message.event(events.TextDone, text=text))
        await self._send(message.event(events.PartDone, part=self._part(text)))

    def _part(self, text: str) -> dict[str, str]:
        """Returns the content part of an event; its type is `text` or `audio` even in GA."""
        if self._session.speaks:
            return {"type": "audio", "transcript": text}
        return {"type": "text", "text": text}

    def _forget_unheard(self) -> None:
        """Cuts the message to the audio that was sent or, at the end of the session, played."""
        spoken = self._spoken
        if spoken is None or not self._session.speaks or self.response.status == "completed":
            return
        is_lost = self.response.status == "in_progress"
        played_ms = round(self.playback.played_s * 1000)
        spoken.cut(min(played_ms, spoken.audio_ms) if is_lost else spoken.audio_ms)


@dataclass(eq=False, repr=False)
class Responses:
    """The responses in progress: at most one in the conversation, and others outside it."""

    _agent: Agent
    _feed: ItemFeed
    _turns: UserTurns
    _send: Send
    _spawn: Callable[[Coroutine[Any, Any, None], str], object]
    _answered: Callable[[float], None]
    """Called at the end of an answer, with the seconds of audio that the client has yet to play."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while a turn waits for its text."""
    _pace: WritingPace = field(default_factory=WritingPace)
    _running: dict[str, ActiveResponse] = field(default_factory=dict)
    _active: ActiveResponse | None = None  # the response in the conversation
    _is_pending: bool = False  # whether another response follows `_active`

    def __post_init__(self) -> None:
        self.settled.set()

    @property
    def is_busy(self) -> bool:
        return bool(self._running) or self._is_pending

    async def create(self, options: ResponseOptions) -> None:
        """Begins a response that the client asks for. Raises RealtimeFault or ItemNotFound."""
        if options.conversation == "auto" and self._active is not None:
            response_id = self._active.response.id
            raise RealtimeFault(
                "conversation_already_has_active_response",
                f"the conversation has an active response, {response_id}; cancel it, or wait",
            )
        if len(self._running) >= PARALLEL_RESPONSES:
            message = f"a session has at most {PARALLEL_RESPONSES} responses at once"
            raise RealtimeFault("rate_limit_exceeded", message)
        await self._start(options)

    async def respond(self, draft_of: str | None = None) -> None:
        """Begins a response to the last item, after the response in progress if there is one.
        `draft_of` is the id of a turn whose draft becomes the answer."""
        if self._active is None:
            await self._start(ResponseOptions(), draft_of, is_automatic=True)
            return
        self._is_pending = True
        if draft_of is not None:
            await self._agent.drafts.discard(draft_of)

    def cancel(self, response_id: str | None) -> None:
        """Cancels a response; without an id, the one in the conversation. Raises RealtimeFault."""
        response = self._active
        if response_id is not None:
            response = self._running.get(response_id)
        if response is None:
            message = "Cancellation failed: no active response found"
            raise RealtimeFault("response_cancel_not_active", message, param="response_id")
        response.cancel("client_cancelled")

    async def interrupt(self, response_id: str) -> None:
        """Cancels a response, and waits for its last event."""
        if (response := self._running.get(response_id)) is not None:
            response.cancel("turn_detected")
            await response.is_done.wait()

    def hold(self) -> None:
        """Pauses the speech of the response in the conversation if a turn holds it."""
        if self._active is not None and self._turns.holds_response:
            self._active.playback.hold()

    def resume(self) -> None:
        """Continues the speech of the response in the conversation unless a turn holds it."""
        if self._active is not None and not self._turns.holds_response:
            self._active.playback.resume()

    def last_words(self) -> str:
        """Returns what the agent has said in the last seconds; "" if no response is active."""
        return self._active.last_words() if self._active is not None else ""

    async def _start(
        self, options: ResponseOptions, draft_of: str | None = None, *, is_automatic: bool = False
    ) -> None:
        session = self._agent.session
        if not isinstance(session, RealtimeSession):
            raise RealtimeFault("invalid_value", "a transcription session has no responses")
        session = options.applied_to(session, voice_frozen=self._agent.has_spoken)
        items = None if options.input is None else self._read(options.input)
        in_conversation = options.conversation == "auto"
        conversation_id = self._agent.conversation_id if in_conversation else None
        response = RealtimeResponse(new_id("resp"), session, conversation_id, options.metadata)
        feed = self._feed if in_conversation else None
        active = ActiveResponse(response, self._send, feed, self._pace)
        self._agent.has_spoken = self._agent.has_spoken or session.speaks
        self._running[response.id] = active
        if in_conversation:
            self._active = active
            self._turns.response_began(response.id, is_automatic=is_automatic)
            self.hold()
        begin = partial(self._begin, session, items, draft_of)
        self._spawn(self._run(active, begin, draft_of), f"response {response.id}")
        await active.is_announced.wait()  # the response's other events follow `response.created`

    async def _run(self, active: ActiveResponse, begin: Begin, draft_of: str | None) -> None:
        try:
            await active.run(begin, partial(self._agent.open_voice, active.response.session))
        finally:
            del self._running[active.response.id]
            if self._active is active:
                self._active = None
            self._turns.response_ended(active.response.id)
            if active.is_interrupted:  # one answer will cover the interrupting and earlier turns
                self._is_pending = False
            if active.answer is not None:
                self._agent.record.count(active.answer)
                await self._agent.drafts.answered()
            if draft_of is not None:
                await self._agent.drafts.discard(draft_of)  # has no effect on a draft that was used
        if self._active is None and self._is_pending:
            self._is_pending = False
            await self.respond()
        else:
            self._answered(active.playback.left_s)

    async def _begin(
        self, session: RealtimeSession, items: list[Item] | None, draft_of: str | None
    ) -> Completion:
        """Begins the answer once the text of all of the user's turns is known."""
        await self._count_request()
        if draft_of is not None:
            with suppress(EngineError):  # a failed draft: no slot was free, for example
                if (draft := await self._agent.drafts.take(draft_of)) is not None:
                    return draft
        await self.settled.wait()
        return await self._agent.answer(session, items)

    async def _count_request(self) -> None:
        """Counts the response as a request. Raises ApiError(rate_limited)."""
        window = await self._agent.count_request()
        reset_s = window.left_s if window.left_s else max(0.0, window.reset_at - time.time())
        left = {"limit": window.limit, "remaining": window.remaining}
        limits = [{"name": "requests", **left, "reset_seconds": round(reset_s, 3)}]
        await self._send(events.RateLimitsUpdated(rate_limits=limits))
        require_request(window)

    def _read(self, references: Sequence[AnyItem | ItemReference]) -> list[Item]:
        """Returns the items that a response reads. Raises ItemNotFound."""
        return [
            self._feed.items.find(item.id) if isinstance(item, ItemReference) else from_wire(item)
            for item in references
        ]
