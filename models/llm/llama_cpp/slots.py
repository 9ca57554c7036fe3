"""Which slot of an engine computes a request: one that remembers the chat, never another owner's.

What a slot remembers makes the first token come sooner, and anybody who can time that could guess
at what somebody else has said; so a slot that changes its owner begins from nothing.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from models.llm.base import GenerationRequest

Marks = tuple[int, ...]
"""One number for what a prompt begins with, and one for each of its messages."""


@dataclass(slots=True)
class _Slot:
    index: int
    owner: str | None = None  # None: never used
    marks: Marks = ()
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
        """The index of a slot, and whether it may use what it remembers."""
        marks = marks_of(request)
        with self._lock:
            free = [slot for slot in self._slots if not slot.busy]
            slot = _remembering(free, request.owner, marks) or min(free, key=lambda s: s.used_at)
            same_owner = slot.owner == request.owner
            self._clock += 1
            slot.owner, slot.marks, slot.used_at = request.owner, marks, self._clock
            slot.busy = True
        try:
            yield slot.index, same_owner
        finally:
            with self._lock:
                slot.busy = False


def marks_of(request: GenerationRequest) -> Marks:
    """Equal prompts have equal marks, and a prompt that goes on begins with the marks of the
    earlier one."""
    head = json.dumps([request.tools, request.template_kwargs, request.enable_thinking])
    said = (json.dumps([m.role, m.content, m.extra]) for m in request.messages)
    return (hash(head), *map(hash, said))


def _remembering(free: list[_Slot], owner: str, marks: Marks) -> _Slot | None:
    """The slot whose chat goes on with `marks`, or has another last message there."""
    best, longest = None, 1  # what prompts begin with is not worth a chat that is forgotten for it
    for slot in free:
        common = _common(slot.marks, marks)
        if slot.owner == owner and common > longest and common >= len(slot.marks) - 1:
            best, longest = slot, common
    return best


def _common(one: Marks, other: Marks) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
