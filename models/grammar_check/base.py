"""Grammar and spelling."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from models.base import Engine


@dataclass(frozen=True, slots=True)
class Finding:
    """What may be wrong at `text[start:end]` (code points), and what could stand there instead."""

    start: int
    end: int
    replacements: tuple[str, ...]  # the likeliest first; at least one
    rule: str
    is_spelling: bool  # a word that the engine does not know


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarCapabilities:
    """What a grammar checker can do."""

    language: str  # ISO 639-1 code


class GrammarEngine(Engine, ABC):
    """Checks texts of one language. Blocking; serves all threads."""

    capabilities: GrammarCapabilities

    @abstractmethod
    def check(self, text: str) -> list[Finding]:
        """All findings, which may overlap, in the order of the text.

        Give it a paragraph at a time: the time of an odd text may grow with its square.
        """
