"""Completes chats: chooses the model, adds the history, charges, and saves the turn."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from typing import Any
from uuid import UUID, uuid4

from configs.schema.languages import DETECTED
from configs.schema.personal_data import Redaction
from models.base import ModelInfo
from models.errors import ContextLengthExceeded, EngineError, EngineLost
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, TokenUsage
from models.llm.structured_output.ast import SchemaTooSlow
from models.llm.tool_calls import readable_arguments
from pipelines.billing.billing import Billing, Charge
from pipelines.billing.operation import Operation
from pipelines.chat.history import (
    KEPT,
    ChatHistory,
    Retention,
    check_results,
    continued,
    estimate_tokens,
    most_tokens,
)
from pipelines.errors import InvalidRequest, ModelNotFound
from pipelines.ports import ChatModel, ModelList, named
from pipelines.tasks import TaskSet
from pipelines.text.language_detection import detect_language
from pipelines.text.redaction import Redactor, masked
from telemetry import metrics

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "svc/slm-3b-int4"  # id that clients hard-code: any available model answers it

ANSWER_SHARE = 4  # a quarter of the context is kept free of history for the answer
MOST_REDACTED = 65_000  # tokens of all messages of a turn: half a second of work
UNKNOWN_CONTEXT_TOKENS = 8192  # most that is charged for a model without a declared context

Chain = list[tuple[ChatModel | None, ModelInfo]]
"""A model and its fallbacks, in the order of attempts; None for a model that is down."""

Begun = tuple[GenerationDelta, AsyncGenerator[GenerationDelta, None], GenerationRequest]
"""The first piece of an answer, the rest, and the request that it answers."""

Resume = Callable[[str, int], AsyncGenerator[GenerationDelta, None]]
"""Continues an answer, from its text so far and the number of its tokens."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One turn of a conversation."""

    workspace_id: int
    generation: GenerationRequest  # has only the messages of this turn
    model: str = DEFAULT_MODEL  # id or alias
    save_chat: bool = True
    chat_id: UUID | None = None  # None begins a chat
    after: str | None = None  # turn of that chat that this one follows; None: the last
    instructions: int = 0  # how many of the first messages are for this turn only, and not saved
    kept: dict[str, Any] | None = None  # saved with the answer, for `ChatHistory.answers`
    operation: Operation = field(default_factory=Operation)
    # Earlier messages of a conversation that is not saved; the model reads as many as fit.
    history: tuple[ChatMessage, ...] = ()
    retention: Retention = Retention()
    redaction: Redaction | None = None  # masks all messages, and an answer that is not JSON
    marks: Redaction | None = None  # personal data to list in the answer

    def prompt(
        self, earlier: tuple[ChatMessage, ...], budget_tokens: int | None
    ) -> tuple[ChatMessage, ...]:
        """Returns all messages of the turn, with as many of the `earlier` ones as fit."""
        return continued(earlier, self.generation.messages, budget_tokens, self.retention)


@dataclass(eq=False, repr=False)
class Completion:
    """An answer that has begun. Either iterate `deltas` or `aclose` it."""

    _request: ChatRequest
    model: str  # id of the model that generates the answer
    _first: GenerationDelta
    _rest: AsyncGenerator[GenerationDelta, None]
    _history: ChatHistory
    _charge: Charge
    _resume: Resume | None = None  # continues the answer after a pause, where the model can
    id: str = field(default_factory=lambda: f"chatcmpl-{token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    turn: str = field(default_factory=lambda: token_hex(8))  # name of the turn in its chat
    usage: TokenUsage | None = None  # usage so far
    _before_pause: TokenUsage | None = None
    _pieces: list[GenerationDelta] = field(default_factory=list)  # deltas that were taken
    _characters: int = 0  # length of their text

    def __post_init__(self) -> None:
        request = self._request
        self.is_new = request.chat_id is None and request.save_chat
        self.chat_id = uuid4() if self.is_new else request.chat_id  # None: nothing is saved
        self._saved = not request.save_chat
        self._saving: asyncio.Task[None] | None = None
        masks = request.redaction if request.generation.response_format is None else None
        self._redactor = Redactor(masks) if masks else None
        self.marks = request.marks
        self._count(self._first)

    async def deltas(
        self, *, is_whole: bool = False, is_paced: bool = False
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Yields the pieces. The turn is saved before the last piece, so that it can be continued.

        The caller delivers each piece at once, or the answer at its end if `is_whole`. If
        `is_paced`, it calls `deliver`, and the generator stays open after the last piece until it
        is closed. Closing this generator stops the model, saves the answer so far and charges for
        it. A failed answer is not charged. Raises EngineError or DatabaseUnavailable."""
        self._charge.delivered = 0 if is_whole or is_paced else None
        try:
            async with self._charge:
                async for delta in self._all():
                    if self._redactor is not None:
                        ends = delta.finish_reason is not None
                        delta = replace(delta, text=self._redactor.push(delta.text, ends=ends))
                    self._pieces.append(delta)
                    self._characters += len(delta.text)
                    self._count(delta)
                    if delta.finish_reason is not None and not is_paced:
                        await self._end()
                    yield delta
                if is_paced and self.answer.finish_reason is not None:
                    await asyncio.Event().wait()
        finally:
            await self.aclose()

    def deliver(self, characters: float) -> None:
        """Records that the first `characters` of the text are delivered."""
        if self.usage is not None:
            share = min(characters / max(self._characters, 1), 1.0)
            tokens = round(self.usage.completion_tokens * share)
            self._charge.delivered = self.usage.prompt_tokens + tokens

    @property
    def answer(self) -> GenerationDelta:
        return GenerationDelta.joined(self._pieces)

    @property
    def whole_usage(self) -> TokenUsage:
        """Usage of an answer that has ended. Raises EngineLost if it broke off."""
        if self.usage is None:
            raise EngineLost("the model ended without a finish reason")
        return self.usage

    async def pause(self) -> bool:
        """Stops the model between two deltas, until the next is taken; returns whether it did. An
        answer with a call, and one with reasoning, cannot be continued."""
        answer = self.answer
        is_text = answer.text and not (
            answer.tool_calls or answer.reasoning or answer.finish_reason
        )
        if self._resume is None or self.usage is None or not is_text:
            return False
        self._before_pause = self.usage
        await self._rest.aclose()
        self._rest = self._resume(answer.text, self.usage.completion_tokens)  # begins when read
        return True

    async def stop(self) -> None:
        """Ends the answer with the delta that was taken last."""
        self._pieces.append(GenerationDelta(finish_reason="length"))
        await self._rest.aclose()

    def _count(self, delta: GenerationDelta) -> None:
        if delta.usage is not None:
            self.usage = delta.usage
            self._charge.used = delta.usage.total_tokens

    async def _end(self) -> None:
        """Saves before it charges: a turn that cannot be saved has failed, and is not charged."""
        if not self._saved:
            await asyncio.shield(self._save())
        if self.usage is not None:
            await self._charge.capture(self.usage.total_tokens)

    async def wait_until_saved(self) -> None:
        """Waits until the turn is stored, if it is being saved. Raises as `ChatHistory.save`."""
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def aclose(self) -> None:
        """Stops the model, saves what was generated, and charges for it unless it has ended. It
        does all of this even when the caller is cancelled."""
        if self._pieces and not self._saved:
            self._save()
        self._charge.leave()
        await self._rest.aclose()

    async def discard(self) -> None:
        """Stops a speculative answer that is not wanted; nothing is saved or charged."""
        self._saved = True
        await self._charge.release()
        await self.aclose()

    async def _all(self) -> AsyncGenerator[GenerationDelta, None]:
        yield self._first
        read = None
        while read is not self._rest:  # a pause replaces it
            read = self._rest
            async for delta in read:
                yield self._with_all_usage(delta)

    def _with_all_usage(self, delta: GenerationDelta) -> GenerationDelta:
        """Adds the tokens from before a pause; text that was processed again counts once."""
        before = self._before_pause
        usage = delta.usage
        if before is None or usage is None:
            return delta
        tokens = before.completion_tokens + usage.completion_tokens
        return replace(delta, usage=replace(before, completion_tokens=tokens))

    def _save(self) -> asyncio.Task[None]:
        """Saves in a background task, which the cancellation of the caller does not reach."""
        self._saved = True
        assert self.chat_id is not None
        request = self._request
        answer = self.answer
        message = answer.to_message()
        if request.kept is not None:
            cached = self.usage.cached_tokens if self.usage else 0
            ended = {"created": self.created, "finish_reason": answer.finish_reason}
            message.extra[KEPT] = {**request.kept, **ended, "cached_tokens": cached}
        self._saving = _saves.start(
            self._history.save(
                request.workspace_id,
                self.chat_id,
                request.generation.messages[request.instructions :],
                message,
                self.model,
                self.usage,
                is_new=self.is_new,
                turn=self.turn,
                after=request.after,
            ),
            name=str(self.chat_id),
        )
        return self._saving


def _log_failure(task: asyncio.Task[None], error: BaseException) -> None:
    """A save that ends after its request can report a failure only in the log."""
    logger.error("chat_not_saved", exc_info=error, extra={"chat_id": task.get_name()})


_saves = TaskSet(_log_failure)


async def wait_for_saves() -> None:
    """Waits until every finished turn of this process is stored, or has failed to be."""
    await _saves.join()


@dataclass(eq=False, repr=False)
class ChatPipeline:
    """Chat completions with the models of a mapping, which may change."""

    _models: Mapping[str, ChatModel]
    _history: ChatHistory
    _billing: Billing
    _infos: Mapping[str, ModelInfo] | None = None  # source of `ModelList`: models that are down
    _usual_names: Sequence[str] = (DEFAULT_MODEL,)  # default names for `ModelList`

    def __post_init__(self) -> None:
        self._list = ModelList(
            self._models, infos=self._infos, chats=self._models, usual_names=self._usual_names
        )

    async def start(self, request: ChatRequest) -> Completion:
        """Starts an answer and waits for its first piece. Raises ModelNotFound, ChatNotFound,
        InvalidRequest, PlanRequired, StorageLimit, InsufficientCredit, DatabaseUnavailable or
        EngineError."""
        chain, earlier = await self.check(request)
        if masks := request.redaction:
            request, earlier = await asyncio.to_thread(_redacted, request, masks, earlier)
        async with AsyncExitStack() as undo:
            charge = await undo.enter_async_context(await self._hold(chain, request, earlier))
            try:
                model, info, begun = await _first_of(chain, request, earlier)
            except (asyncio.CancelledError, SchemaTooSlow):  # the model has done work
                if not request.generation.is_speculative:
                    most = request.generation.sampling.max_tokens
                    budget = _history_budget(_first_up(chain)[1], most)
                    charge.made = estimate_tokens(request.prompt(earlier, budget))
                raise
            undo.pop_all()
        first, rest, generation = begun
        resume = partial(_resumed, model, generation) if info.pausable else None
        return Completion(request, info.id, first, rest, self._history, charge, resume)

    async def check(self, request: ChatRequest) -> tuple[Chain, tuple[ChatMessage, ...]]:
        """Makes the checks of `start` that need neither credit nor a model. Returns the models, and
        the messages of the history. Raises as `start`."""
        chain = await self._chain(request.model)
        await self._history.check(request.workspace_id, request.chat_id, saves=request.save_chat)
        earlier = await self._earlier(request, _first_up(chain)[1])
        check_results(earlier, request.generation.messages)
        return chain, earlier

    async def _earlier(self, request: ChatRequest, info: ModelInfo) -> tuple[ChatMessage, ...]:
        """Returns the messages before the turn that a model may use. Raises ChatNotFound."""
        if request.chat_id is None:
            return request.history
        budget = _history_budget(info, request.generation.sampling.max_tokens)
        return await self._history.load(
            request.workspace_id, request.chat_id, budget, after=request.after
        )

    async def read_ahead(self, request: ChatRequest) -> int:
        """Lets the model process a prompt in advance, so that answers to prompts that begin with it
        come sooner. Returns the number of its tokens. It is neither saved nor charged. Raises
        ModelNotFound, ChatNotFound or EngineError."""
        model, info = await self.choose(request.model)
        earlier = await self._earlier(request, info)
        reading = replace(request, generation=replace(request.generation, reads_only=True))
        delta, rest, _ = await _first_piece(model, info, reading, earlier)
        async with aclosing(rest):
            while delta.usage is None:
                delta = await anext(rest)
        return delta.usage.prompt_tokens

    async def _hold(
        self, chain: Chain, request: ChatRequest, earlier: tuple[ChatMessage, ...]
    ) -> Charge:
        """Holds the highest possible price of the turn, by whichever model answers."""
        tools = request.generation.tools
        answer = request.generation.sampling.max_tokens

        def most(info: ModelInfo) -> int:
            tokens = info.context_tokens or UNKNOWN_CONTEXT_TOKENS
            if answer is None:
                return tokens
            prompt = request.prompt(earlier, _history_budget(info, answer))
            return min(tokens, most_tokens(prompt, tools) + answer)

        tokens = max(most(info) for model, info in chain if model is not None)
        return await self._billing.hold(request.workspace_id, "chat", tokens, request.operation)

    async def choose(self, name: str) -> tuple[ChatModel, ModelInfo]:
        """Chooses the model of that id or alias, or its first fallback that is up. Raises
        ModelNotFound, or EngineLost when the model may be down."""
        return _first_up(await self._chain(name))

    async def _chain(self, name: str) -> Chain:
        """Lists the model of that name and its fallbacks, at least one up. Raises as `choose`."""
        listed = await self._list.by_port()
        by_id = {
            entry.info.id: (
                self._models.get(port) if entry.status != "unavailable" else None,
                entry.info,
            )
            for port, entry in listed.items()
            if entry is not None
        }
        infos = [info for _, info in by_id.values()]
        up = [info for model, info in by_id.values() if model is not None]
        wanted: str | None = name
        chain: Chain = []
        while wanted is not None and (match := named(wanted, infos)) is not None:
            if by_id[match.id] in chain:
                break
            chain.append(by_id[match.id])
            wanted = match.fallback
        if any(model is not None for model, _ in chain):
            return chain
        if chain and (info := chain[0][1]).is_awaited:
            raise EngineLost(f"{info.id} cannot answer yet: its weights are being fetched")
        if not up or len(up) < len(listed):
            raise EngineLost("a chat model is down, possibly the requested one")
        ids = ", ".join(sorted(info.id for info in up))
        raise ModelNotFound(f"no chat model has that name; available: {ids}")


def _redacted(
    request: ChatRequest, redaction: Redaction, earlier: Sequence[ChatMessage]
) -> tuple[ChatRequest, tuple[ChatMessage, ...]]:
    """Masks the messages of a request and the earlier ones; blocking. Raises InvalidRequest."""
    messages = request.generation.messages
    if estimate_tokens((*earlier, *messages)) > MOST_REDACTED:
        raise InvalidRequest(f"redact: the messages have more than about {MOST_REDACTED} tokens")
    language = detect_language(messages[-1].content, DETECTED)
    redactor = Redactor(replace(redaction, language=language))

    def mask(message: ChatMessage) -> ChatMessage:
        extra = deepcopy(message.extra)
        for call in extra.get("tool_calls", ()):
            function = call["function"]
            arguments = masked(*redactor.take(function["arguments"], "\n"))
            function["arguments"] = readable_arguments(arguments)  # a mask may replace a number
        return replace(message, content=masked(*redactor.take(message.content, "\n")), extra=extra)

    earlier = tuple(map(mask, earlier))
    generation = replace(request.generation, messages=tuple(map(mask, messages)))
    return replace(request, redaction=redactor.redaction, generation=generation), earlier


def _first_up(chain: Chain) -> tuple[ChatModel, ModelInfo]:
    return next((model, info) for model, info in chain if model is not None)


async def _first_of(
    chain: Chain, request: ChatRequest, earlier: tuple[ChatMessage, ...]
) -> tuple[ChatModel, ModelInfo, Begun]:
    """Begins the answer with the first model of the chain that can. Raises the EngineError of the
    first that failed; an error that is not the model's fault ends the attempts."""
    failure: EngineError | None = None
    for model, info in chain:
        if model is None:
            continue
        try:
            begun = await _first_piece(model, info, request, earlier)
        except EngineError as error:
            failure = failure or error
            if not failure.retryable or request.generation.is_speculative:
                break
        else:
            if info is not chain[0][1]:
                metrics.chat_fallbacks.labels(chain[0][1].id).inc()
            return model, info, begun
    assert failure is not None  # one of the chain is up
    raise failure


async def _first_piece(
    model: ChatModel, info: ModelInfo, request: ChatRequest, earlier: tuple[ChatMessage, ...]
) -> Begun:
    """Begins the answer with as much history as fits. Raises EngineError."""
    asked = request.generation
    budget = _history_budget(info, asked.sampling.max_tokens)
    shortest = request.prompt(earlier, 0)
    while True:
        prompt = request.prompt(earlier, budget)
        generation = replace(asked, messages=prompt, owner=str(request.workspace_id))
        if asked.reads_only:  # each further token would keep cores from the recogniser for 40 ms
            generation = replace(generation, sampling=replace(asked.sampling, max_tokens=1))
        deltas = model.generate(generation)
        try:
            return await anext(deltas), deltas, generation
        except ContextLengthExceeded:
            if prompt == shortest:
                raise  # the caller's own messages are too long, and are never cut silently
            budget = (estimate_tokens(prompt) if budget is None else budget) * 3 // 4
        except StopAsyncIteration:
            raise EngineLost("the model ended without an answer") from None


async def _resumed(
    model: ChatModel, request: GenerationRequest, begun: str, tokens: int
) -> AsyncGenerator[GenerationDelta, None]:
    """Continues an answer that was paused after `tokens` tokens. Raises EngineError."""
    most = request.sampling.max_tokens
    if most is not None and tokens >= most:
        yield GenerationDelta(finish_reason="length", usage=TokenUsage(0, 0))
        return
    rest = replace(request.after(begun, tokens), is_speculative=False)
    try:
        async with aclosing(model.generate(rest)) as deltas:
            async for delta in deltas:
                yield delta
    except ContextLengthExceeded:  # the answer would have ended here without the pause
        yield GenerationDelta(finish_reason="length", usage=TokenUsage(0, 0))


def _history_budget(info: ModelInfo, max_tokens: int | None) -> int | None:
    if info.context_tokens is None:
        return None
    reserve = info.context_tokens // ANSWER_SHARE
    return info.context_tokens - (reserve if max_tokens is None else min(max_tokens, reserve))
