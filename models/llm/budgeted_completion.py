"""An answer that has a form comes to its end before its tokens do."""

import math

from models.llm.base import FinishReason, TokenUsage
from models.llm.structured_output.grammar import Grammar, ParserState
from models.llm.tool_calls import MARK


class BudgetedCompletion:
    """Lets text through while the tokens that are left are enough to end the answer.

    What comes after such a place is held until there is another, or the model ends by itself. When
    the tokens are spent before, the answer is ended from the last such place, the shortest way.
    """

    def __init__(
        self,
        form: Grammar,
        max_tokens: int | None,
        context_tokens: int,
        *,
        json_or_calls: bool = False,
    ) -> None:
        self._json_or_calls = json_or_calls
        self._beginning = ""  # the first character that was let through
        self._place = form.begin()
        self._safe: ParserState | None = None  # where what was let through ends; None: nowhere yet
        self._held = ""
        self._begun = False
        self.lost = False  # something that the model wrote was left out
        self._max_tokens = math.inf if max_tokens is None else max_tokens
        self._context_tokens = context_tokens

    def feed(self, text: str, usage: TokenUsage) -> str:
        """What is let through, now that `text` is the end of what `usage` was spent on."""
        left = min(
            self._max_tokens - usage.completion_tokens, self._context_tokens - usage.total_tokens
        )
        if not self._begun and self._place.cost <= left + usage.completion_tokens:
            self._safe = self._place
        self._begun = True
        self._held += text
        self._place = self._place.after(text)
        if self._place.cost <= left:  # a token has one byte at least
            self._safe = self._place
        elif math.isinf(self._place.cost):  # not of this form: nothing is known any more
            self._safe = None
        elif self._safe is not None:
            return ""
        held, self._held = self._held, ""
        self._beginning = self._beginning or held[:1]
        return held

    def end(
        self, finish: FinishReason | None, calls: int | None
    ) -> tuple[str, FinishReason | None]:
        """The rest of the answer when the model has written all that it will, and why it ended.

        `calls` is how many calls have come out whole; None where the answer cannot have any.
        """
        held, self._held = self._held, ""
        if finish != "length":
            return held, finish
        self.lost = bool(held)
        if calls:
            return "", "stop"  # what is missing belongs to a later call, of which nothing came out
        if self._safe is None:  # there was never room for an end, so nothing was held
            return "", finish
        ending = self._safe.ending()
        if calls is None or (self._json_or_calls and (self._beginning or ending[:1]) != MARK[0]):
            return ending, "stop"
        return ending, finish  # a call may lack a part of its arguments: who acts on it must know
