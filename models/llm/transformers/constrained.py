"""Constrained decoding with llguidance, which masks tokens that leave the grammar."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import llguidance
import llguidance.hf

from models.errors import UnsupportedFeature
from models.llm.base import GenerationRequest
from models.llm.structured_output.answer import (
    MAX_CALLS,
    answer_grammar,
    is_json_or_calls,
    may_call_tools,
    schema_of,
)
from models.llm.structured_output.ast import Grammar, SchemaError, SchemaTooLarge, WorkBudget
from models.llm.structured_output.json_schema import MAX_SCHEMA_CHARS, WIDE
from models.llm.structured_output.notations import to_lark
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

Matcher: TypeAlias = Any  # llguidance.LLMatcher; the CPU profile does not install the library

# Without optional white space, which a model could write endlessly.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class ConstrainedAnswer:
    matcher: Matcher  # computes the token mask
    grammar: Grammar | None  # for budgeted completion; None where llguidance compiles the schema
    # by itself


class ConstrainedAnswers:
    """Constrains the answers of one model; thread-safe."""

    def __init__(self, tokenizer: Any, size: int, ends: Sequence[int]) -> None:
        """`size` is the number of logits of the model."""
        self._tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=size, eos_token=list(ends))
        mark = tokenizer.get_vocab().get(MARK)
        self._mark_is_special = mark is not None and self._tokens.is_special_token(mark)

    def constrain(
        self, request: GenerationRequest, budget: WorkBudget | None = None
    ) -> ConstrainedAnswer | None:
        """None when the answer is not constrained. Raises UnsupportedFeature, SchemaTooLarge.

        The grammar is our own, so that it and ParserState agree. Schemas that our compiler does not
        support (such as with `patternProperties`) llguidance may compile by itself: such an answer
        obeys its schema, but is cut off when its tokens are spent. Those that are too large it does
        not get: nothing can cancel it, nor bound its CPU time.

        Takes some milliseconds, and up to a second for a large schema.
        """
        try:
            grammar = answer_grammar(request, WIDE, budget)
            if grammar is None:
                return None
            matcher = self._matcher(to_lark(grammar, mark_is_token=self._mark_is_special))
            if not matcher.is_error():
                return ConstrainedAnswer(matcher, grammar)
        except SchemaTooLarge:
            raise
        except SchemaError:
            pass
        matcher = self._matcher(self._grammar(request))
        if matcher.is_error():
            reason = matcher.get_error().splitlines()[0]
            raise UnsupportedFeature(f"the schema cannot be enforced: {reason}")
        return ConstrainedAnswer(matcher, None)

    def _matcher(self, grammar: str) -> Matcher:
        return llguidance.LLMatcher(
            self._tokens,
            grammar,
            log_level=0,
            limits=llguidance.LLParserLimits(verbose_errors=False),
        )

    def _grammar(self, request: GenerationRequest) -> str:
        """The grammar with schemas that llguidance compiles."""
        answer = request.response_format
        if not may_call_tools(request):
            assert answer is not None
            return f"start: {_json(schema_of(answer))}\n"
        tools = [tool["function"] for tool in request.tools]
        if request.called_tool is not None:
            tools = [tool for tool in tools if tool["name"] == request.called_tool]
        if request.tool_choice == "auto" and answer is None:
            return self._text_with_calls(tools)
        most = MAX_CALLS if request.parallel_tool_calls else 1
        rules = ["start: calls"]
        if answer is not None and is_json_or_calls(request):
            rules[0] += f" | {_json(schema_of(answer))}"
        rules.append(f'calls: call ("\\n" call){{0,{most - 1}}}')
        rules.append("call: " + " | ".join(f"call_{index}" for index in range(len(tools))))
        opening = MARK if self._mark_is_special else json.dumps(MARK)
        for index, tool in enumerate(tools):
            head = json.dumps(f"{BEFORE_NAME}{tool['name']}{AFTER_NAME}")
            rules.append(
                f"call_{index}: {opening} {head} {_json(_parameters(tool))} {json.dumps(END)}"
            )
        return "\n".join(rules) + "\n"

    def _text_with_calls(self, tools: list[dict[str, Any]]) -> str:
        grammar: str = llguidance.StructTag.to_grammar(
            [
                llguidance.StructTag(
                    trigger=MARK,
                    begin=f"{MARK}{BEFORE_NAME}{tool['name']}{AFTER_NAME}",
                    grammar=_styled(_parameters(tool)),
                    end=END,
                )
                for tool in tools
            ],
            assume_special=self._mark_is_special,
        )
        return grammar


def _parameters(tool: dict[str, Any]) -> Any:
    return tool.get("parameters") or {"type": "object", "properties": {}}


def _styled(schema: Any) -> Any:
    """Raises UnsupportedFeature."""
    if not isinstance(schema, dict):
        raise UnsupportedFeature("a schema is a JSON object")
    if len(json.dumps(schema)) > MAX_SCHEMA_CHARS:
        raise UnsupportedFeature(f"the schema has more than {MAX_SCHEMA_CHARS} characters")
    return {**schema, "x-guidance": JSON_STYLE}


def _json(schema: Any) -> str:
    """Raises UnsupportedFeature."""
    return f"%json {json.dumps(_styled(schema))}"
