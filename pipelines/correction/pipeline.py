"""Text correction: rules, a language model where it helps, style, and the dictionary last."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from configs.schema.correction import CorrectionConfig, Purpose
from models.base import ModelInfo
from models.errors import EngineError, EngineLost
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, TokenUsage
from models.registry import once
from pipelines.billing.billing import Billing, Charge
from pipelines.chat.history import ChatHistory
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatPipeline, ChatRequest, Completion
from pipelines.correction.dictionary import Dictionary
from pipelines.correction.edits import Edit, apply_edits, compose
from pipelines.correction.passages import Passage, cut
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rewriting import Rewriter, most_for
from pipelines.correction.rules import CorrectionRules
from pipelines.errors import InvalidRequest
from pipelines.fair_queuing import FairSlots
from pipelines.ports import ChatModel

T = TypeVar("T")

ModelAndInfo = tuple[ChatModel, ModelInfo]

_THREADS = 2  # rules hold one processor each
_WAITING = 256  # pieces of texts, one of each request; admission control lets fewer in


class CorrectedCompletion(Completion):
    """A correction that has begun; `edits` is complete when `deltas` has ended."""

    edits: list[Edit]

    @property
    def original(self) -> str:
        """The caller's text, which the offsets of `edits` count in."""
        return self._request.generation.messages[-1].content


@dataclass(eq=False, repr=False)
class CorrectionPipeline:
    """Corrects texts. Rules run in its own threads, a piece of each workspace in turn."""

    _chat: ChatPipeline
    _rules: Callable[[], CorrectionRules]  # called once, in a thread, when they are first needed
    _history: ChatHistory
    _billing: Billing
    _config: CorrectionConfig

    def __post_init__(self) -> None:
        self._rules = once(self._rules)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="correction")
        # One more than the threads: a workspace alone uses all, and another waits for one piece.
        self._slots = FairSlots(_THREADS + 1, _WAITING, "too many texts wait to be corrected")

    async def start(self, request: CorrectionRequest) -> CorrectedCompletion:
        """Waits for the first piece, so that early errors are raised here.

        Raises ModelNotFound, ChatNotFound, InvalidRequest, PlanRequired, InsufficientCredit,
        DatabaseUnavailable or EngineError.
        """
        rules = await self._in_thread(request.workspace_id, self._rules)
        helper = await self._choose(rules, request)
        await self._history.check(request.workspace_id, request.chat_id, saves=request.save_chat)
        async with AsyncExitStack() as undo:
            charge = await undo.enter_async_context(await self._hold(helper, request))
            rewriter = None
            if helper is not None:
                is_worse = partial(self._in_thread, request.workspace_id, rules.is_worse)
                rewriter = Rewriter(helper[0], request, self._config, is_worse)
            edits: list[Edit] = []
            pieces = self._pieces(rules, rewriter, request, edits)
            first = await anext(pieces)
            undo.pop_all()
        model = self._config.rules_id if helper is None else helper[1].id
        saved = ChatRequest(
            request.workspace_id,
            GenerationRequest((ChatMessage("user", request.text),)),
            save_chat=request.save_chat,
            chat_id=request.chat_id,
        )
        completion = CorrectedCompletion(saved, model, first, pieces, self._history, charge)
        completion.edits = edits
        return completion

    async def warm_up(self) -> None:
        """Loads the rules before a client waits for them."""
        await self._in_thread(0, self._rules)

    async def _choose(
        self, rules: CorrectionRules, request: CorrectionRequest
    ) -> ModelAndInfo | None:
        """The language model that corrects, or None where rules alone are as good or better.

        A tone needs a model; anything else is corrected without one while it is down.
        """
        toned = request.style.tone is not None
        if request.model == self._config.rules_id:
            if toned:
                raise InvalidRequest(f"style.tone: {request.model} supports no tones; omit model")
            return None
        try:
            model, info = await self._chat.choose(request.model or DEFAULT_MODEL)
        except EngineLost:
            if toned:
                raise
            return None
        english = await self._in_thread(request.workspace_id, rules.is_english, request.text)
        if not english and info.languages == ("en",):
            return None  # a model would only do damage
        purpose: Purpose = "tone" if toned else "grammar" if english else "languages"
        asked = purpose in self._config.models.get(info.id, (purpose,))
        return (model, info) if asked else None

    async def _hold(self, helper: ModelAndInfo | None, request: CorrectionRequest) -> Charge:
        """Holds the highest price of the correction: 0 when no model is asked."""
        tokens = 0
        if helper is not None:
            tokens = await self._in_thread(request.workspace_id, most_for, request, self._config)
        return await self._billing.hold(request.workspace_id, "chat", tokens, request.operation)

    async def _pieces(
        self,
        rules: CorrectionRules,
        rewriter: Rewriter | None,
        request: CorrectionRequest,
        edits: list[Edit],
    ) -> AsyncGenerator[GenerationDelta, None]:
        """The corrected text, and `edits` of the caller's, piece by piece."""
        text, owner = request.text, request.workspace_id
        dictionary = Dictionary(request.dictionary)
        ready = ""  # corrected, before the dictionary is applied
        sent = 0  # of `ready`
        before: list[Edit] = []
        last: list[Edit] = []
        pieces: list[Passage] = await self._in_thread(
            owner, list, cut(text, self._config.piece_characters)
        )
        if (paragraphs := sum(piece.is_prose for piece in pieces)) > self._config.paragraphs:
            raise InvalidRequest(
                f"text: has {paragraphs} paragraphs, and at most {self._config.paragraphs} are "
                "allowed: send it in parts"
            )
        for piece in pieces:
            made = await self._correct(
                rules, rewriter, request, text[piece.start : piece.end], piece
            )
            before += (edit.moved(piece.start) for edit in made)
            ready += apply_edits(text[piece.start : piece.end], made)
            ends = piece.end == len(text)
            safe = len(ready) if ends else len(ready) - dictionary.reach
            if safe <= sent and not ends:
                continue
            found: list[Edit] = await self._in_thread(
                owner, list, dictionary.edits(ready, sent, safe)
            )
            last += found
            until = max(safe, found[-1].end if found else 0)
            out = apply_edits(ready[sent:until], [edit.moved(-sent) for edit in found])
            sent = until
            usage = TokenUsage(0, 0) if rewriter is None else rewriter.usage
            if out and not ends:
                yield GenerationDelta(text=out, usage=usage)
            elif ends:
                edits += await self._in_thread(owner, compose, text, before, last)
                yield GenerationDelta(text=out, finish_reason="stop", usage=usage)

    async def _correct(
        self,
        rules: CorrectionRules,
        rewriter: Rewriter | None,
        request: CorrectionRequest,
        text: str,
        piece: Passage,
    ) -> list[Edit]:
        """The edits of all steps except the dictionary."""
        if not piece.is_prose:
            return []
        owner = request.workspace_id
        edits = await self._in_thread(owner, rules.mistakes, text, request)
        if rewriter is not None:
            try:
                asked = await rewriter.edits(apply_edits(text, edits))
            except EngineError:
                if request.style.tone is not None:
                    raise
                asked = []  # the rules' text stands
            edits = compose(text, edits, asked)
        now = apply_edits(text, edits)
        styled = await self._in_thread(owner, rules.styled, now, piece, request)
        return compose(text, edits, styled)

    async def _in_thread(self, owner: int, work: Callable[..., T], *values: object) -> T:
        """Runs a piece of work when it is the turn of `owner`, a workspace. Raises Overloaded."""
        async with self._slots.slot(owner):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partial(work, *values))
