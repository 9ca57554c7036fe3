"""Slots of a server with prompt caches, which tenants never share."""

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from models.errors import EngineOverloaded
from models.llm.base import GenerationRequest

STOPPING_S = 1.0  # the longest that a request waits for its cache

PromptHashes = tuple[int, ...]  # hash of the head (such as the tools), then one per message


@dataclass(slots=True, eq=False)
class CachedChat:
    """A chat whose prompt is cached."""

    owner: str | None = None  # None for a slot that was never used
    hashes: PromptHashes = ()
    is_draft: bool = True  # all its requests were speculative
    tokens: int = 0  # length of the cache


@dataclass(slots=True)
class Slot:
    index: int
    chat: CachedChat = field(default_factory=CachedChat)
    previous: CachedChat = field(default_factory=CachedChat)  # `chat`, if the request continues it
    used_at: int = 0
    busy: bool = False
    is_speculative: bool = False  # whether its current request is speculative


class Slots:
    """Assignment of requests to slots by their prompt caches, which tenants never share.

    A cached prefix shortens the time to the first token, so a tenant could find out another's
    prompts by timing (a side channel). A slot that changes its owner therefore begins with an empty
    cache. Threads take slots; there are never more threads than slots.

    A request waits up to STOPPING_S for a cache in use if either request is speculative, or if it
    continues an answer: the work that it replaces is being stopped. Without the wait, a tenth of
    the spoken turns of four sessions processed 80 to 570 tokens again in another slot, and were
    answered after 3 to 9 s.
    """

    def __init__(self, number: int) -> None:
        self._slots = [Slot(index) for index in range(number)]
        self._freed = threading.Condition()
        self._clock = 0

    @contextmanager
    def take(self, request: GenerationRequest) -> Iterator[Slot]:
        """Takes a slot; raises EngineOverloaded if a speculative request's cache stays in use."""
        hashes = prompt_hashes(request)

        def is_awaited(slot: Slot) -> bool:
            replaces = request.is_speculative or bool(request.begun)
            return slot.busy and (slot.is_speculative or replaces)

        def is_cache_free() -> bool:
            slots = [slot for slot in self._slots if not slot.busy or is_awaited(slot)]
            best = _best_cached(slots, request.owner, hashes)
            return best is None or not best.busy

        with self._freed:
            is_free = self._freed.wait_for(is_cache_free, STOPPING_S)
            if request.is_speculative and not is_free:
                raise EngineOverloaded("the cache of this chat is in use")
            free = [slot for slot in self._slots if not slot.busy]
            slot = _best_cached(free, request.owner, hashes)
            if slot is None:
                slot = min(free, key=lambda s: s.used_at)
                slot.previous, slot.chat = slot.chat, CachedChat(request.owner)
            else:
                slot.previous = slot.chat
            slot.chat.hashes = hashes
            slot.chat.is_draft &= request.is_speculative
            self._clock += 1
            slot.used_at = self._clock
            slot.busy = True
            slot.is_speculative = request.is_speculative
        try:
            yield slot
        finally:
            with self._freed:
                slot.busy = False
                self._freed.notify_all()


def prompt_hashes(request: GenerationRequest) -> PromptHashes:
    """Hashes a prompt; one that continues another begins with the other's hashes."""
    kwargs = request.template_kwargs
    head = json.dumps([request.cache_key, request.tools, kwargs, request.enable_thinking])
    messages = (json.dumps([m.role, m.content, m.extra]) for m in request.messages)
    return (hash(head), *map(hash, messages))


def best_chat(
    chats: Iterable[CachedChat], owner: str | None, hashes: PromptHashes
) -> CachedChat | None:
    """Finds the owner's cached chat that `hashes` continue, perhaps with another last message."""

    def common(chat: CachedChat) -> int:
        return len(os.path.commonprefix([chat.hashes, hashes]))

    # An equal head alone does not justify the eviction of a cached chat.
    best = [c for c in chats if c.owner == owner and common(c) >= max(2, len(c.hashes) - 1)]
    return max(best, key=common, default=None)


def _best_cached(free: list[Slot], owner: str, hashes: PromptHashes) -> Slot | None:
    chat = best_chat((slot.chat for slot in free), owner, hashes)
    return next((slot for slot in free if slot.chat is chat), None)
