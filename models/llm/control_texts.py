"""Texts that a tokenizer reads as control tokens, such as the mark that ends a turn. In a message
they are text: a user who writes them could otherwise end the turn and forge one of the system."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

from models.llm.answer_reader import END_OF_THINKING, THINK
from models.llm.tool_calls import MARK

BREAK = "\u2060"  # word joiner: invisible, and no tokenizer finds the token around it
# Marks within a turn, which end none. Templates look for them in the messages.
_INNER = frozenset({THINK, END_OF_THINKING, MARK, MARK.replace("<", "</")})
# Nearly all control texts have one of these forms. An alternation of the 6,243 of one tokenizer
# would take 0.7 s for 50,000 characters; looking up what has a form takes some milliseconds.
_FORMS = (re.compile(r"<[^<>\s]{1,64}>"), re.compile(r"\[[^\[\]\s]{1,64}\]"))

T = TypeVar("T")


class ControlTexts:
    """Breaks the texts of a model's control tokens in whatever callers wrote."""

    def __init__(self, control: Iterable[str], others: Iterable[str], template: str) -> None:
        """`others`: further texts that the tokenizer never divides; those that are in the
        `template` may be marks of turns."""
        marks = {text for text in others if text in template}
        self._texts = frozenset(filter(None, marks.union(control))) - _INNER
        unusual = [
            re.escape(text)
            for text in self._texts
            if not any(form.fullmatch(text) for form in _FORMS)
        ]
        self._unusual = re.compile("|".join(sorted(unusual, key=len, reverse=True)) or r"(?!)")

    def broken(self, value: T) -> T:
        """Returns the same JSON value with all control texts broken, also those in keys."""
        result: Any = value
        if isinstance(value, str):
            for form in _FORMS:  # in turn: a match of one form may hide a text of the other
                result = form.sub(self._break_if_control, result)
            result = self._unusual.sub(_break, result)
        elif isinstance(value, dict):
            result = {self.broken(key): self.broken(item) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            result = [self.broken(item) for item in value]
        return result  # type: ignore[no-any-return]

    def _break_if_control(self, match: re.Match[str]) -> str:
        return _break(match) if match[0] in self._texts else match[0]


def _break(match: re.Match[str]) -> str:
    return match[0][0] + BREAK + match[0][1:]
