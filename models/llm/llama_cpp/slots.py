"""Assigns requests to the engine's slots by their prompt caches, which tenants never share.

A cached prefix makes the first token come sooner, so one tenant could find out another's prompts by
timing (a side channel); a slot that changes its owner therefore begins with an empty cache.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from models.llm.base import GenerationRequest

PromptHashes = tuple[int, ...]
"""A hash of the head of a prompt, then one of each of its messages."""


@dataclass(slots=True)
class _Slot:
    index: int
    owner: str | None = None  # None: never used
    hashes: PromptHashes = ()
    used_at: int = 0
    busy: bool = False


class Slots:
    """Hands out slots to threads; there are never more threads than slots."""

    def __init__(self, number: int) -> None:
        self._slots = [_Slot(index) for index in range(number)]
        self._lock = threading.Lock()
        self._clock = 0

    @contextmanager
    def take(self, request: GenerationRequest) -> Iterator[tuple[int, bool]]:
        """The index of a slot, and whether it may use its cache."""
        hashes = prompt_hashes(request)
        with self._lock:
            free = [slot for slot in self._slots if not slot.busy]
            slot = _best_cached(free, request.owner, hashes) or min(free, key=lambda s: s.used_at)
            same_owner = slot.owner == request.owner
            self._clock += 1
            slot.owner, slot.hashes, slot.used_at = request.owner, hashes, self._clock
            slot.busy = True
        try:
            yield slot.index, same_owner
        finally:
            with self._lock:
                slot.busy = False


def prompt_hashes(request: GenerationRequest) -> PromptHashes:
    """Hashes of the messages: a prompt that continues another begins with the hashes of it."""
    head = json.dumps([request.tools, request.template_kwargs, request.enable_thinking])
    said = (json.dumps([m.role, m.content, m.extra]) for m in request.messages)
    return (hash(head), *map(hash, said))


def _best_cached(free: list[_Slot], owner: str, hashes: PromptHashes) -> _Slot | None:
    """The slot whose chat `hashes` continue, or replace the last message of."""
    best, longest = None, 1  # an equal head alone is not worth evicting a chat
    for slot in free:
        common = _common(slot.hashes, hashes)
        if slot.owner == owner and common > longest and common >= len(slot.hashes) - 1:
            best, longest = slot, common
    return best


def _common(one: PromptHashes, other: PromptHashes) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
