"""Constrained decoding with llguidance, which masks tokens that leave the grammar."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import llguidance
import llguidance.hf

from models.llm.base import GenerationRequest
from models.llm.structured_output.answer import answer_grammar, compile_enforced
from models.llm.structured_output.ast import Grammar, SchemaError, SchemaTooLarge, WorkBudget
from models.llm.structured_output.json_schema import WIDE
from models.llm.structured_output.llguidance import to_llguidance
from models.llm.structured_output.notations import to_lark
from models.llm.tool_calls import MARK

Matcher: TypeAlias = llguidance.LLMatcher


@dataclass(frozen=True, slots=True)
class ConstrainedAnswer:
    lark: str  # as llguidance reads it
    matcher: Matcher  # computes the token mask
    grammar: Grammar | None  # for budgeted completion; None if only llguidance has the schema


class ConstrainedAnswers:
    """Constraints of the answers of one model; thread-safe."""

    def __init__(self, tokenizer: Any, size: int, ends: Sequence[int]) -> None:
        """`size` is the number of logits of the model."""
        self._tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=size, eos_token=list(ends))
        mark = tokenizer.get_vocab().get(MARK)
        self._mark_is_special = mark is not None and self._tokens.is_special_token(mark)

    def constrain(
        self, request: GenerationRequest, budget: WorkBudget | None = None
    ) -> ConstrainedAnswer | None:
        """Compiles a request's constraint; None when the answer is free. Raises SchemaError.

        Takes some milliseconds, up to a second for a large schema. `compile_enforced` may reduce
        the schemas of tools that are not strict. The grammar is our own, so that it agrees with
        ParserState. llguidance compiles schemas that our compiler does not support (such as with
        `patternProperties`): such an answer obeys its schema, but is cut off when its tokens are
        spent. llguidance does not get schemas that are too large, because its work can neither be
        cancelled nor bounded.
        """
        return compile_enforced(request, partial(self._constrain, budget=budget))

    def _constrain(
        self, request: GenerationRequest, budget: WorkBudget | None
    ) -> ConstrainedAnswer | None:
        mark_is_token = self._mark_is_special
        try:
            grammar = answer_grammar(request, WIDE, budget)
            if grammar is None:
                return None
            lark = to_lark(grammar, mark_is_token=mark_is_token)
            matcher = self._matcher(lark)
            if not matcher.is_error():
                return ConstrainedAnswer(lark, matcher, grammar)
            refusal = SchemaError("the schema is too large")
        except SchemaTooLarge:
            raise
        except SchemaError as error:
            refusal = error
        with suppress(SchemaError):
            lark = to_llguidance(request, mark_is_token=mark_is_token)
            matcher = self._matcher(lark)
            if not matcher.is_error():
                return ConstrainedAnswer(lark, matcher, None)
        raise refusal

    def _matcher(self, grammar: str) -> Matcher:
        return llguidance.LLMatcher(
            self._tokens,
            grammar,
            log_level=0,
            limits=llguidance.LLParserLimits(verbose_errors=False),
        )
