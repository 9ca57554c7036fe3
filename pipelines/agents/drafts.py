"""Speculative work of the language model, which costs nothing unless its result is used.

While the user speaks, the model reads the beginning of the turn into its prefix cache. When the
turn has probably ended, the answer is begun as a draft."""

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
    """Drafts of one session: answers that are discarded when the user says more. A draft starts
    when the model has finished reading ahead, in the same slot, whose cache it continues."""

    chats: ChatPipeline
    count_prompts: Callable[[int], Awaitable[bool]]  # counts a warm prompt; False if too many
    _warm_prompt: Any = None  # the last prompt of `warm_up`
    _unanswered: int = 0  # warm prompts that no answer has followed yet
    _reading: "asyncio.Task[None] | None" = None
    _tasks: TaskSet = field(default_factory=TaskSet)
    _drafts: "dict[str, asyncio.Task[Completion]]" = field(default_factory=dict)  # drafts by turn

    def read_ahead(self, request: ChatRequest) -> None:
        """Lets the model read a prompt, unless it is still reading another."""
        if self._reading is None or self._reading.done():
            self._reading = self._tasks.start(self._read(request), "read ahead")

    async def warm_up(self, request: ChatRequest) -> None:
        """Lets the model read a prompt before anything is said, unless it is the same as the last,
        or too many warm prompts of the workspace have led to no answer."""
        prompt = request.generation.messages[:1], request.generation.tools
        is_new = prompt != self._warm_prompt
        self._warm_prompt = prompt
        if is_new and await self.count_prompts(1):
            self._unanswered += 1
            self.read_ahead(request)

    async def answered(self) -> None:
        """Counts a paid answer, which allows another warm prompt."""
        if self._unanswered:
            self._unanswered -= 1
            await self.count_prompts(-1)

    def begin(self, turn_id: str, request: ChatRequest) -> None:
        """Begins the draft of a turn that has none."""
        self._drafts[turn_id] = self._tasks.start(self._start(request), "draft")

    async def take(self, turn_id: str) -> Completion | None:
        """Returns the draft of a turn, which is charged from now on; None if there is none. Raises
        the errors of `ChatPipeline.start`."""
        draft = self._drafts.get(turn_id)
        if draft is None:
            return None
        completion = await draft
        self._drafts.pop(turn_id, None)
        return completion

    async def discard(self, turn_id: str) -> None:
        """Discards the draft of a turn, free of charge, unless it was taken."""
        draft = self._drafts.pop(turn_id, None)
        if draft is None:
            return
        if not draft.done():
            draft.cancel()
        elif not draft.cancelled() and draft.exception() is None:
            await draft.result().discard()

    async def close(self) -> None:
        for turn_id in [*self._drafts]:
            await self.discard(turn_id)
        await self._tasks.close()

    async def _start(self, request: ChatRequest) -> Completion:
        if self._reading is not None:
            await asyncio.wait({self._reading})
        return await self.chats.start(_speculative(request))

    async def _read(self, request: ChatRequest) -> None:
        with suppress(EngineError, PipelineError, DatabaseError):  # the response will fail, too
            await self.chats.read_ahead(_speculative(request))


def _speculative(request: ChatRequest) -> ChatRequest:
    return replace(request, generation=replace(request.generation, is_speculative=True))
