"""Interface of engines that check grammar and spelling."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from models.base import Engine


@dataclass(frozen=True, slots=True)
class Finding:
    """A possible error at `text[start:end]` (code points), and its replacements."""

    start: int
    end: int
    replacements: tuple[str, ...]  # likeliest first; never empty
    rule: str
    is_spelling: bool  # an unknown word


class GrammarEngine(Engine, ABC):
    """Checker of texts in one language. Blocking; thread-safe."""

    @abstractmethod
    def check(self, text: str) -> list[Finding]:
        """Lists all findings, which may overlap, in the order of the text. Pass one paragraph at a
        time: the time may grow with the square of the length."""
