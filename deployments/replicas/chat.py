"""The deployment of chat models."""

import operator
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from weakref import WeakKeyDictionary

from deployments.autoscaling import WAIT_S
from deployments.replicas.model import ModelDeployment
from deployments.replicas.rehearsal import rehearse_chat
from deployments.replicas.turns import TURN_S, AnswerInTurns
from models.errors import ContextLengthExceeded, EngineOverloaded
from models.fairness.shares import CONTENDED_S
from models.fairness.slots import FairSlots
from models.llm.base import ChatEngine, GenerationDelta, GenerationRequest, TokenUsage
from models.registry import CHAT
from pipelines.chat.coalescing import coalesce
from telemetry import metrics, tracing
from telemetry.tracing import Attributes, CallHeaders

# Sending a piece to another process takes a fifth of the CPU time that a small model needs for a
# token, on the same cores. About 16 pieces per second still look like typing.
PIECE_INTERVAL_S = 0.06
CLAUSE_MARKS = (",", ";", ":", ".", "!", "?", "…", "，", "、", "。", "！", "？", "।")
FIRST_PHRASE = 40  # in a spoken answer's first characters, a phrase may end after any word
MAX_WAITING = 64  # requests that may wait for a slot
KEPT_SHARE = 4  # speculative requests leave a quarter of the slots free
TOKEN_CHARACTERS = 4  # characters per token of a prompt
ANSWER_TOKENS = 200  # assumed tokens of an answer without max_tokens
FIRST_PACE_S = 0.05  # seconds per token of eight parallel answers, until the model has answered


class ChatDeployment(ModelDeployment[ChatEngine]):
    """One language model, which batches its requests by itself; tenants take turns."""

    def __init__(self) -> None:
        super().__init__(CHAT, rehearse_chat)
        # The slots of the engine, and of a replaced engine while it still has streams.
        self._slots: WeakKeyDictionary[ChatEngine, FairSlots] = WeakKeyDictionary()
        self._waiting_tokens = 0
        # Seconds per token of the last answer. Kept per engine, since a slow model that replaced a
        # fast one would otherwise seem to have no waiting work until its first answer had ended.
        self._paces_s: WeakKeyDictionary[ChatEngine, float] = WeakKeyDictionary()

    async def generate(
        self, request: GenerationRequest, caller: CallHeaders | None = None
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Generate the answer to the request of `caller`, as a stream. Raises EngineError."""

        def answer(engine: ChatEngine) -> AsyncGenerator[GenerationDelta, None]:
            deltas = answer_timed(self._generate(engine, request), is_resumed=bool(request.begun))
            is_due = clause_ends(FIRST_PHRASE if request.is_spoken else 0)
            return coalesce(deltas, operator.add, PIECE_INTERVAL_S, is_due)

        attributes: Attributes = {"gen_ai.output.type": "text"}
        async with aclosing(self.serve(caller, "chat", attributes, answer)) as deltas:
            async for delta in deltas:
                yield delta

    def load(self) -> float:
        """Return the share of the slots that are busy, plus the seconds of the waiting tokens
        divided by WAIT_S. A prompt that fills the context is half a minute of work, and a greeting
        a second."""
        engine = self.engine()
        number = engine.capabilities.max_concurrency
        waiting_s = self._waiting_tokens * self._paces_s.get(engine, FIRST_PACE_S) / number
        return self._slots_of(engine).taken / number + waiting_s / WAIT_S

    async def _generate(
        self, engine: ChatEngine, request: GenerationRequest
    ) -> AsyncGenerator[GenerationDelta, None]:
        slots, number = self._slots_of(engine), engine.capabilities.max_concurrency
        if request.is_speculative and slots.free <= number // KEPT_SHARE:
            raise EngineOverloaded("the model has no slot for a speculative answer")
        answer = AnswerInTurns(request)
        while not answer.is_complete:
            async with aclosing(self._turn(engine, slots, answer)) as deltas:
                async for delta in deltas:
                    yield delta

    async def _turn(
        self, engine: ChatEngine, slots: FairSlots, answer: AnswerInTurns
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Yield the engine's answer. The slot is held until the engine, not the reader, has ended.

        An answer holds its slot to the end, or only for TURN_S while a tenant waits who has no slot
        and has used less. Without such turns, four tenants who asked for 400 tokens each kept all
        four slots of a model, and the chat of a fifth tenant waited for 40 s.
        """
        leave = await self._slot(slots, answer.rest, is_first=answer.usage is not None)
        began = time.perf_counter()
        used = TokenUsage(0, 0)
        try:
            async with aclosing(engine.generate(answer.rest)) as deltas:
                async for delta in deltas:
                    used = delta.usage or used
                    yield answer.add(delta)
                    running_s = time.perf_counter() - began
                    is_divisible = engine.capabilities.pausable and answer.may_pause_after(delta)
                    owner = answer.rest.owner
                    if is_divisible and slots.asks_to_leave(owner, running_s, TURN_S):
                        answer.pause()
                        metrics.chat_gave_way.inc()
                        return
            answer.is_complete = True
        except ContextLengthExceeded:
            if answer.usage is None:
                raise
            answer.is_complete = True  # the answer would have ended here without the pause
            yield GenerationDelta(finish_reason="length", usage=answer.usage)
        finally:
            if used.total_tokens:
                self._paces_s[engine] = (time.perf_counter() - began) / used.total_tokens
            leave()

    async def _slot(
        self, slots: FairSlots, request: GenerationRequest, *, is_first: bool
    ) -> Callable[[], None]:
        """Wait for a slot; return the function that gives it back. Raises EngineOverloaded."""
        tokens = waiting_tokens(request)
        self._waiting_tokens += tokens
        try:
            return await slots.take(request.owner, is_first=is_first)
        finally:
            self._waiting_tokens -= tokens

    def _slots_of(self, engine: ChatEngine) -> FairSlots:
        if engine not in self._slots:
            number = engine.capabilities.max_concurrency
            self._slots[engine] = FairSlots(
                number,
                MAX_WAITING,
                partial(EngineOverloaded, "too many chats wait for the model"),
                # Streams share the cores: a chat took 4.1 s beside four streams of another tenant,
                # and 1.8 s beside two (8 slots, 2 cores).
                most=-(-number // 4),
                contended_s=CONTENDED_S,
            )
        return self._slots[engine]


def waiting_tokens(request: GenerationRequest) -> int:
    """Estimate how many tokens the model will read and write for a request. Both weigh the same: on
    2 cores, a token of a prompt takes 3.6 to 9.7 ms, and a token of one of eight concurrent answers
    7 ms."""
    prompt = sum(len(message.content) for message in request.messages) // TOKEN_CHARACTERS
    return prompt + min(request.sampling.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)


def clause_ends(characters: int = 0) -> Callable[[GenerationDelta], bool]:
    """Make a function that tells after each delta whether a voice can begin to speak the text.
    Without it, the first words would wait for 30 ms on average. Whether a full stop ends a sentence
    shows only in the text after it. Within the first `characters`, a phrase may end after any
    word."""
    before = False
    seen = 0

    def ends(delta: GenerationDelta) -> bool:
        nonlocal before, seen
        seen += len(delta.text)
        was_end, before = before, delta.text.rstrip().endswith(CLAUSE_MARKS)
        return was_end or before or 0 < seen <= characters

    return ends


async def answer_timed(
    deltas: AsyncGenerator[GenerationDelta, None], *, is_resumed: bool = False
) -> AsyncGenerator[GenerationDelta, None]:
    """Yield the same pieces and record token metrics, also for an answer that is cancelled. For an
    answer that resumes after a pause, the prompt and the first token are already recorded."""
    started = time.perf_counter()
    first: float | None = None
    usage, before = TokenUsage(0, 0), 0  # `before`: completion tokens up to the first piece
    try:
        async with aclosing(deltas):
            async for delta in deltas:
                usage = delta.usage or usage
                if first is None:
                    first = time.perf_counter()
                    before = usage.completion_tokens
                    if is_resumed:
                        metrics.chat_resumed.inc()
                    else:
                        metrics.chat_first_token_seconds.observe(first - started)
                yield delta
    finally:
        metrics.chat_tokens.labels("prompt").inc(0 if is_resumed else usage.prompt_tokens)
        metrics.chat_tokens.labels("completion").inc(usage.completion_tokens)
        tracing.annotate(
            {
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
            }
        )
        count = usage.completion_tokens - before
        if first is not None and count > 0:
            elapsed_s = max(time.perf_counter() - first, 1e-6)
            metrics.chat_tokens_per_second.observe(count / elapsed_s)
