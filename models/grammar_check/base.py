"""Grammar and spelling."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from models.base import Engine


@dataclass(frozen=True, slots=True)
class Finding:
    """A possible error at `text[start:end]` (code points), and its replacements."""

    start: int
    end: int
    replacements: tuple[str, ...]  # the likeliest first; at least one
    rule: str
    is_spelling: bool  # a word that the engine does not know


class GrammarEngine(Engine, ABC):
    """Checks texts of one language. Blocking; thread-safe."""

    @abstractmethod
    def check(self, text: str) -> list[Finding]:
        """All findings, which may overlap, in the order of the text.

        Pass one paragraph at a time: the time may grow with the square of a text's length.
        """
