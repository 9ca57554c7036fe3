"""Completes an answer that has a grammar before its tokens are spent (budgeted completion)."""

import math

from models.llm.base import FinishReason, TokenUsage
from models.llm.structured_output.ast import Grammar
from models.llm.structured_output.parser_state import ParserState
from models.llm.tool_calls import MARK


class BudgetedCompletion:
    """Lets text through while the tokens that are left are enough to complete the answer.

    What comes after such a place is held until there is another, or the model ends by itself. When
    the tokens are spent before, the answer is completed from the last such place, the shortest way.
    """

    def __init__(self, grammar: Grammar, max_tokens: int | None, context_tokens: int) -> None:
        self.lost = False  # something that the model wrote was left out
        self._has_free_text = not grammar.root.min_bytes
        self._state = ParserState.start(grammar)
        self._safe: ParserState | None = None  # where what was let through ends; None: nowhere yet
        self._held = ""
        self._first = ""  # the first character that was let through
        self._begun = False
        self._max_tokens = math.inf if max_tokens is None else max_tokens
        self._context_tokens = context_tokens

    def feed(self, text: str, usage: TokenUsage) -> str:
        """The text that is let through; `usage` is that of the answer up to the end of `text`."""
        left = min(
            self._max_tokens - usage.completion_tokens, self._context_tokens - usage.total_tokens
        )
        if not self._begun and self._state.min_bytes <= left + usage.completion_tokens:
            self._safe = self._state
        self._begun = True
        self._held += text
        self._state = self._state.advance(text)
        if self._state.min_bytes <= left:  # a token has one byte at least
            self._safe = self._state
        elif math.isinf(self._state.min_bytes):  # it has left its grammar: nothing is known
            self._safe = None
        elif self._safe is not None:
            return ""
        held, self._held = self._held, ""
        self._first = self._first or held[:1]
        return held

    def end(self, finish: FinishReason | None, calls: int) -> tuple[str, FinishReason | None]:
        """The rest of the answer when the model has written all that it will, and why it ended.

        `calls` is how many tool calls have come out whole.
        """
        held, self._held = self._held, ""
        if finish != "length":
            return held, finish
        self.lost = bool(held)
        if calls:
            return "", "stop"  # what is missing belongs to a later call, of which nothing came out
        if self._safe is None:  # there was never room for an end, so nothing was held
            return "", finish
        completion = self._safe.completion()
        if not self._has_free_text and (self._first or completion[:1]) != MARK[0]:
            return completion, "stop"  # it is JSON
        # A call may lack a part of its arguments: `length` warns the client that acts on it.
        return completion, finish
