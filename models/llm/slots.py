"""The slots of a server with prompt caches, which tenants never share."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from models.errors import EngineOverloaded
from models.llm.base import GenerationRequest

STOPPING_S = 1.0  # at most for which a request waits for its cache

PromptHashes = tuple[int, ...]
"""A hash of the head of a prompt (tools and such), then one of each message."""


@dataclass(slots=True)
class _Slot:
    index: int
    owner: str | None = None  # None: never used
    hashes: PromptHashes = ()
    used_at: int = 0
    busy: bool = False
    is_speculative: bool = False  # what it is busy with


class Slots:
    """Assigns requests to slots by their prompt caches, which tenants never share.

    A cached prefix shortens the time to the first token, so one tenant could find out another's
    prompts by timing (a side channel); a slot that changes its owner therefore begins with an empty
    cache. Threads take slots; there are never more threads than slots.

    A request waits up to STOPPING_S for a cache that is in use, if either is speculative, or if it
    continues an answer: the work that the request replaces is being stopped. Without the wait, a
    tenth of the spoken turns of four sessions read 80 to 570 tokens again, in another slot, and
    were answered after 3 to 9 s.
    """

    def __init__(self, number: int) -> None:
        self._slots = [_Slot(index) for index in range(number)]
        self._freed = threading.Condition()
        self._clock = 0

    @contextmanager
    def take(self, request: GenerationRequest) -> Iterator[tuple[int, bool]]:
        """The index of a slot, and whether it may use its cache. Raises EngineOverloaded when a
        speculative request would begin without its cache, since that is in use."""
        hashes = prompt_hashes(request)

        def is_awaited(slot: _Slot) -> bool:
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
            slot = _best_cached(free, request.owner, hashes) or min(free, key=lambda s: s.used_at)
            same_owner = slot.owner == request.owner
            self._clock += 1
            slot.owner, slot.hashes, slot.used_at = request.owner, hashes, self._clock
            slot.busy, slot.is_speculative = True, request.is_speculative
        try:
            yield slot.index, same_owner
        finally:
            with self._freed:
                slot.busy = False
                self._freed.notify_all()


def prompt_hashes(request: GenerationRequest) -> PromptHashes:
    """Hashes of the messages: a prompt that continues another begins with the other's hashes."""
    kwargs = request.template_kwargs
    head = json.dumps([request.cache_key, request.tools, kwargs, request.enable_thinking])
    said = (json.dumps([m.role, m.content, m.extra]) for m in request.messages)
    return (hash(head), *map(hash, said))


def _best_cached(free: list[_Slot], owner: str, hashes: PromptHashes) -> _Slot | None:
    """The slot whose cached chat `hashes` continue, perhaps with another last message."""

    def common(slot: _Slot) -> int:
        return len(os.path.commonprefix([slot.hashes, hashes]))

    # An equal head alone does not justify the eviction of a cached chat.
    best = [s for s in free if s.owner == owner and common(s) >= max(2, len(s.hashes) - 1)]
    return max(best, key=common, default=None)
