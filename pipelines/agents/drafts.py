"""Work of the language model before it is certain what the user says: it costs the user nothing.

While the user speaks the model reads what is known of the turn, so that its prefix cache has it;
when the turn has probably ended, the answer is begun as a draft.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from db.errors import DatabaseError
from models.errors import EngineError
from pipelines.chat.pipeline import ChatPipeline, ChatRequest, Completion
from pipelines.errors import PipelineError
from pipelines.tasks import TaskSet


@dataclass(slots=True)
class Drafts:
    """The drafts of one session: answers that are thrown away when the user says more.

    They wait for the prompt that is read ahead: it has the slot of the model whose cache they
    continue.
    """

    chats: ChatPipeline
    count_prompts: Callable[[int], Awaitable[bool]]  # read before any word; False: too many
    _warm: Any = None  # the last such prompt
    _unanswered: int = 0  # such prompts without an answer
    _reading: "asyncio.Task[None] | None" = None
    _tasks: TaskSet = field(default_factory=TaskSet)
    _drafts: "dict[str, asyncio.Task[Completion]]" = field(default_factory=dict)  # by turn

    def read_ahead(self, request: ChatRequest) -> None:
        """Has the model read a prompt, unless it still reads another."""
        if self._reading is None or self._reading.done():
            self._reading = self._tasks.start(self._read(request), "read ahead")

    async def warm_up(self, request: ChatRequest) -> None:
        """Has the model read a prompt before anything is said, unless it was the last one, or too
        many of the workspace had no answer: they would keep the model busy for nothing."""
        prompt = request.generation.messages[:1], request.generation.tools
        is_new = prompt != self._warm
        self._warm = prompt
        if is_new and await self.count_prompts(1):
            self._unanswered += 1
            self.read_ahead(request)

    async def answered(self) -> None:
        """An answer was made, which is paid."""
        if self._unanswered:
            self._unanswered -= 1
            await self.count_prompts(-1)

    def begin(self, turn_id: str, request: ChatRequest) -> None:
        """Begins the draft of a turn, which has none."""
        self._drafts[turn_id] = self._tasks.start(self._start(request), "draft")

    async def take(self, turn_id: str) -> Completion | None:
        """The draft of a turn, which is charged from now on; None where there is none. Raises what
        `ChatPipeline.start` does."""
        draft = self._drafts.get(turn_id)
        if draft is None:
            return None
        completion = await draft
        self._drafts.pop(turn_id, None)
        return completion

    async def discard(self, turn_id: str) -> None:
        """Throws away the draft of a turn, free of charge, unless it was taken."""
        draft = self._drafts.pop(turn_id, None)
        if draft is None:
            return
        if not draft.done():
            draft.cancel()
        elif not draft.cancelled() and draft.exception() is None:
            await draft.result().discard()

    async def close(self) -> None:
        """Discards what was not taken, and ends the work."""
        for turn_id in [*self._drafts]:
            await self.discard(turn_id)
        await self._tasks.close()

    async def _start(self, request: ChatRequest) -> Completion:
        if self._reading is not None:
            await asyncio.wait({self._reading})
        return await self.chats.start(_speculative(request))

    async def _read(self, request: ChatRequest) -> None:
        with suppress(EngineError, PipelineError, DatabaseError):  # a response reports it
            await self.chats.read_ahead(_speculative(request))


def _speculative(request: ChatRequest) -> ChatRequest:
    return replace(request, generation=replace(request.generation, is_speculative=True))
