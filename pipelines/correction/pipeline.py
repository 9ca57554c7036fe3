"""Corrects texts by rules, a language model where it helps, style, and the dictionary last."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from configs.schema.correction import CorrectionConfig
from models.base import ModelInfo
from models.errors import EngineLost
from models.fairness.slots import FairSlots
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, TokenUsage
from models.registry import once
from pipelines.billing.billing import Billing
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatPipeline, ChatRequest, Completion
from pipelines.correction.dictionary import Dictionary
from pipelines.correction.edits import Edit, apply_edits, compose
from pipelines.correction.passages import Passage
from pipelines.correction.planning import Planner
from pipelines.correction.protection import Protected, carried, within
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rewriting import Rewriter, most_for
from pipelines.correction.rules import CorrectionRules
from pipelines.errors import InvalidRequest, Overloaded
from pipelines.ports import ChatModel

T = TypeVar("T")

ModelAndInfo = tuple[ChatModel, ModelInfo]

_THREADS = 2  # each keeps a core busy
_WAITING = 256  # waiting pieces, one per request; admission control admits fewer requests


@dataclass(eq=False, repr=False, kw_only=True)
class CorrectedCompletion(Completion):
    """A correction that has begun; `edits` and `plan` are complete when `deltas` has ended."""

    edits: list[Edit]
    plan: Planner

    @property
    def original(self) -> str:
        """The caller's text, to which the offsets of `edits` refer."""
        return self._request.generation.messages[-1].content


@dataclass(eq=False, repr=False)
class CorrectionPipeline:
    """Correction of texts. Rules run in its own threads, with workspaces in turn."""

    _chat: ChatPipeline
    _rules: Callable[[], CorrectionRules]  # called once, in a thread, when they are first needed
    _history: ChatHistory
    _billing: Billing
    _config: CorrectionConfig

    def __post_init__(self) -> None:
        self._rules = once(self._rules)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="correction")
        # One slot more than threads: a lone workspace may use all but the last slot, and thus all
        # threads. Another workspace then waits for one piece.
        self._slots = FairSlots(
            _THREADS + 1, _WAITING, partial(Overloaded, "too many texts wait to be corrected")
        )

    async def start(self, request: CorrectionRequest) -> CorrectedCompletion:
        """Waits for the first piece. Raises ModelNotFound, ChatNotFound, InvalidRequest,
        PlanRequired, StorageLimit, InsufficientCredit, DatabaseUnavailable or EngineError."""
        owner = request.workspace_id
        rules = await self._in_thread(owner, self._rules)
        helper, reason = await self._choose(request)
        await self._history.check(owner, request.chat_id, saves=request.save_chat)
        plan = Planner(request, self._config, helper and helper[1], reason)
        passages: list[Passage] = await self._in_thread(owner, plan.passages, rules)
        tokens = await self._in_thread(owner, most_for, passages, request, self._config)
        async with AsyncExitStack() as undo:
            hold = await self._billing.hold(owner, "chat", tokens, request.operation)
            charge = await undo.enter_async_context(hold)
            rewriter = None
            model = self._config.rules_id
            if helper is not None and any(passage.asked is not None for passage in passages):
                is_worse = partial(self._in_thread, owner, rules.is_worse)
                rewriter = Rewriter(helper[0], request, self._config, is_worse)
                model = helper[1].id
            edits: list[Edit] = []
            pieces = self._pieces(plan, passages, rewriter, edits)
            first = await anext(pieces)
            undo.pop_all()
        saved = ChatRequest(
            owner,
            GenerationRequest((ChatMessage("user", request.text),)),
            save_chat=request.save_chat,
            chat_id=request.chat_id,
        )
        return CorrectedCompletion(
            saved, model, first, pieces, self._history, charge, edits=edits, plan=plan
        )

    async def warm_up(self) -> None:
        """Loads the rules before a client waits for them."""
        await self._in_thread(0, self._rules)

    async def _choose(self, request: CorrectionRequest) -> tuple[ModelAndInfo | None, str]:
        """Chooses the language model that may be asked, or None with the reason."""
        if request.model == self._config.rules_id:
            if request.style.tone is not None:
                raise InvalidRequest(f"style.tone: {request.model} supports no tones; omit model")
            return None, f"{request.model} is not a language model"
        try:
            return await self._chat.choose(request.model or DEFAULT_MODEL), ""
        except EngineLost:
            return None, "no language model can answer now"

    async def _pieces(
        self, plan: Planner, passages: list[Passage], rewriter: Rewriter | None, edits: list[Edit]
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Yields the corrected text piece by piece, and fills `edits` at the end."""
        text = plan.request.text
        owner = plan.request.workspace_id
        dictionary = Dictionary(plan.request.dictionary)
        protected: list[Protected] = await self._in_thread(owner, dictionary.protected, text)
        ready = ""  # corrected text, before the dictionary is applied
        sent = 0  # characters of `ready` that were sent
        before: list[Edit] = []
        last: list[Edit] = []
        terms: list[Protected] = []  # their places in `ready`
        for piece in passages:
            held = within(protected, piece.start, piece.end)
            corrections = await self._correct(plan, rewriter, piece, held)
            before += (edit.moved(piece.start) for edit in corrections)
            terms += (
                term.moved(len(ready)) for term in carried(held, corrections) if term.start >= 0
            )
            ready += apply_edits(text[piece.start : piece.end], corrections)
            ends = piece.end == len(text)
            safe = len(ready) if ends else len(ready) - dictionary.reach
            if safe <= sent and not ends:
                continue
            replacements: list[Edit] = await self._in_thread(
                owner, list, dictionary.edits(ready, sent, safe, terms)
            )
            last += replacements
            until = max(safe, replacements[-1].end if replacements else 0)
            out = apply_edits(ready[sent:until], [edit.moved(-sent) for edit in replacements])
            sent = until
            usage = TokenUsage(0, 0) if rewriter is None else rewriter.usage
            if out and not ends:
                yield GenerationDelta(text=out, usage=usage)
            elif ends:
                edits += await self._in_thread(owner, compose, text, before, last)
                yield GenerationDelta(text=out, finish_reason="stop", usage=usage)

    async def _correct(
        self, plan: Planner, rewriter: Rewriter | None, piece: Passage, held: list[Protected]
    ) -> list[Edit]:
        """Finds the edits of all steps except the dictionary; none changes `held`."""
        if not piece.is_prose:
            return []
        rules = self._rules()  # loaded by `start`
        request = plan.request
        owner = request.workspace_id
        text = request.text[piece.start : piece.end]
        edits = await self._in_thread(owner, rules.mistakes, text, request, held)
        # Without a purpose, a sentence in which rules find no mistake counts as correct.
        if rewriter is not None and piece.asked is not None and (piece.asked or edits):
            now = apply_edits(text, edits)
            asked, reason = await rewriter.edits(now, piece, carried(held, edits))
            if reason is not None:
                plan.undone.update((purpose, reason) for purpose in piece.asked)
            edits = compose(text, edits, asked)
        now, held = apply_edits(text, edits), carried(held, edits)
        styled = await self._in_thread(owner, rules.styled, now, piece, request, held)
        return compose(text, edits, styled)

    async def _in_thread(self, owner: int, work: Callable[..., T], *values: object) -> T:
        """Runs a piece of work when it is the turn of `owner`, a workspace. Raises Overloaded."""
        async with self._slots.slot(owner):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partial(work, *values))
