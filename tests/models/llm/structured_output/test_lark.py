"""Grammars in the Lark notation of llguidance, which allows the texts of the grammars."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.base import GenerationRequest
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.ast import MAX_GRAMMAR_CHARS, Grammar, SchemaError
from models.llm.structured_output.json_schema import NARROW, WIDE
from models.llm.structured_output.notations import to_lark
from models.llm.structured_output.parser_state import ParserState
from models.llm.tool_calls import MARK
from tests.cpu_time import check_cpu_units
from tests.models.llm.structured_output.gbnf_samples import sample
from tests.models.llm.structured_output.schemas import GOOD, HOSTILE, record, strings
from tests.models.llm.structured_output.test_json_schema import (
    CLOCK,
    SCHEMAS,
    WEATHER,
    grammar_of,
    rules_of,
)


def calling(choice: Any, *tools: dict[str, Any]) -> Grammar:
    shaped = tuple({"type": "function", "function": tool} for tool in tools)
    grammar = answer_grammar(GenerationRequest((), tools=shaped, tool_choice=choice), WIDE)
    assert grammar is not None
    return grammar


def test_a_flat_schema_is_one_regular_expression_unless_too_long() -> None:
    written = to_lark(grammar_of({"enum": ["a", "b/"]}, WIDE), mark_is_token=False)
    assert written == r"start: /\x22(?:a\x22|b\x2F\x22)/" + "\n"
    long = to_lark(grammar_of({"enum": ["x" * 9_000, "y"]}, WIDE), mark_is_token=False)
    assert "x" * 9_000 in long and "/x" not in long


def test_a_recursive_schema_is_written_as_several_rules() -> None:
    written = to_lark(grammar_of(GOOD["list of itself"], WIDE), mark_is_token=False)
    names = [line.partition(":")[0] for line in written.splitlines()]
    assert names[0] == "start" and len(names) == len(set(names)) > 1


def test_the_tool_call_marker_is_text_or_a_special_token() -> None:
    for choice in ("auto", "required"):
        grammar = calling(choice, WEATHER, CLOCK)
        text, token = (to_lark(grammar, mark_is_token=is_token) for is_token in (False, True))
        assert json.dumps(MARK) in text or r"\x3Ctool_call\x3E" in text
        assert f" {MARK} " in token.replace("\n", " \n")
        assert json.dumps(MARK) not in token and r"\x3Ctool_call\x3E" not in token


DEEP: dict[str, Any] = {
    "a ladder": {"enum": ["a" * length for length in range(1, 60)]},
    "many that may be left out": record({f"p{index}": strings() for index in range(60)}),
    "a long list": {"enum": [f"{n * 7919:07}" for n in range(2_000)]},
}


@pytest.mark.parametrize("name", [*HOSTILE, *DEEP])
def test_a_hostile_schema_is_refused_or_written_within_the_cpu_limit(name: str) -> None:
    def write() -> None:
        try:
            written = to_lark(grammar_of((HOSTILE | DEEP)[name], WIDE), mark_is_token=False)
            assert len(written) < 4 * MAX_GRAMMAR_CHARS
        except SchemaError:
            assert name in HOSTILE

    check_cpu_units(write, below=100)


class ByteTokens:
    """A tokenizer with one token per byte, constrained by llguidance."""

    def __init__(self, folder: Path) -> None:
        reason = "the libraries of the GPU profile are not installed"
        pytest.importorskip("torch", reason=reason)
        guidance = pytest.importorskip("llguidance", reason=reason)
        import llguidance.hf
        from transformers import AutoTokenizer

        from tests.models.llm.transformers.tiny_chat import write_tokenizer

        write_tokenizer(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._guidance = guidance
        self._tokens = llguidance.hf.from_tokenizer(self.tokenizer)

    def matcher(self, grammar: Grammar) -> Any:
        matcher = self._guidance.LLMatcher(self._tokens, to_lark(grammar, mark_is_token=False))
        assert not matcher.is_error(), matcher.get_error()
        return matcher

    def allows(self, grammar: Grammar, text: str) -> bool:
        """Whether llguidance allows `text` as a whole answer."""
        matcher = self.matcher(grammar)
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

    def random_answer(self, grammar: Grammar, random: Random, most: int = 200) -> tuple[str, bool]:
        """A text of random allowed tokens, and whether the answer may end there."""
        matcher = self.matcher(grammar)
        tokens: list[int] = []
        end = self.tokenizer.eos_token_id
        likely = [end, *self.tokenizer.convert_tokens_to_ids(['"', "]", "}"])]
        while len(tokens) < most and not matcher.is_stopped():
            mask = matcher.compute_logit_bias()
            allowed = [token for token, bias in enumerate(mask) if bias]
            assert allowed, matcher.get_error()
            liked = [token for token in likely if token in allowed]
            token = random.choice(liked if liked and random.random() < 0.2 else allowed)
            if token == end:
                break
            assert matcher.consume_token(token)
            tokens.append(token)
        text: str = self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        return text, matcher.is_accepting()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> ByteTokens:
    return ByteTokens(tmp_path_factory.mktemp("tokenizer"))


def check(tokens: ByteTokens, grammar: Grammar, random: Random, times: int) -> None:
    """Random texts that llguidance allows are in the grammar, complete or cut off."""
    for _ in range(times):
        text, whole = tokens.random_answer(grammar, random)
        state = ParserState.start(grammar).advance(text.removesuffix("\ufffd"))
        assert state.min_bytes == 0 if whole else state.min_bytes < float("inf"), text


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*GOOD, *DEEP])
def test_llguidance_allows_exactly_the_texts_of_the_grammar(tokens: ByteTokens, name: str) -> None:
    random, schema = Random(name), (GOOD | DEEP)[name]
    rules = rules_of(grammar_of(schema, NARROW))
    for bounds in (NARROW, WIDE):
        grammar = grammar_of(schema, bounds)
        assert all(tokens.allows(grammar, sample(rules, random, random.random())) for _ in range(8))
        check(tokens, grammar, random, 4)


@pytest.mark.gpu
@settings(max_examples=80)
@given(SCHEMAS, st.randoms(use_true_random=False))
def test_llguidance_allows_no_text_outside_the_grammar_of_a_random_schema(
    tokens: ByteTokens, schema: Any, random: Random
) -> None:
    if isinstance(schema, dict):
        try:
            grammar = grammar_of(schema, WIDE)
        except SchemaError:
            return
        check(tokens, grammar, random, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_llguidance_allows_calls_as_tool_choice_requires(tokens: ByteTokens, choice: str) -> None:
    grammar = calling(choice, WEATHER, CLOCK)
    call = f'{MARK}\n{{"name": "get_weather", "arguments": {{"city": "Ro"}}}}\n</tool_call>'
    assert tokens.allows(grammar, call) and tokens.allows(grammar, f"{call}\n{call}")
    for before in ("Let me < look.\n", "<think>\nHm.\n</think>\n\n"):
        assert tokens.allows(grammar, before + call) == (choice == "auto")
    assert not tokens.allows(grammar, call.replace("get_weather", "get_time"))
    assert not tokens.allows(grammar, call + " So?")
    assert not tokens.allows(grammar, "\n".join([call] * 9))
    check(tokens, grammar, Random(1), 8)
