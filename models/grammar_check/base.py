"""Grammar and spelling."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Finding:
    """What may be wrong at `text[start:end]` (code points), and what could stand there instead."""

    start: int
    end: int
    replacements: tuple[str, ...]  # the likeliest first; at least one
    rule: str
    is_spelling: bool  # a word that the engine does not know


class GrammarEngine(Protocol):
    """Checks texts of one language. Blocking; one shared instance serves all threads."""

    language: str  # ISO 639-1

    def check(self, text: str) -> list[Finding]:
        """All findings, which may overlap, in the order of the text.

        Give it a paragraph at a time: the time of an odd text may grow with its square.
        """
        ...
