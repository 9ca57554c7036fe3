"""Reasoning of language models is not spoken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tts.cues import plain_tokens
from pipelines.tts.reasoning import ReasoningFilter
from tests.cpu_time import check_cpu_units

SPOKEN = {
    "Hi <think>a < b</think> there.": "Hi  there.",
    "<think>all of it": "",
    '<THINKING depth="1">x</thinking>Yes.': "Yes.",
    "<reasoning>a <think>b</think> c</reasoning>d": "d",
    "<thought>\n`a\n</thought >Hello.": "Hello.",
    "No beginning </think> here.": "No beginning  here.",
    "Write the `<think>` tag.": "Write the `<think>` tag.",
    "1 < 2 and <thinker> and <": "1 < 2 and <thinker> and <",
    "the end is <thi": "the end is <thi",
    "<think about it> yes": "<think about it> yes",
    "<think/>Hello, <thinking />you.": "Hello, you.",
    f"a<think>{'x' * 3000}</think>b": "ab",
}


def in_pieces(text: str, size: int) -> str:
    reasoning = ReasoningFilter()
    pieces = [reasoning.feed(text[start : start + size]) for start in range(0, len(text), size)]
    return "".join(pieces) + reasoning.finish()


@pytest.mark.parametrize(("text", "spoken"), SPOKEN.items())
def test_reasoning_is_dropped_from_a_whole_text_and_from_pieces(text: str, spoken: str) -> None:
    assert "".join(token.text for token in plain_tokens(text, free=False)) == spoken
    for size in (1, 2, 3, 7, len(text)):
        assert in_pieces(text, size) == spoken


TAGS = ("<think>", "</think>", "<Reasoning a=1>", "</reasoning>", "<", "/", "th", "`", " ", "a.")


@given(st.lists(st.sampled_from(TAGS), max_size=12).map("".join), st.integers(1, 9))
def test_pieces_of_a_text_give_what_the_whole_gives(text: str, size: int) -> None:
    assert in_pieces(text, size) == in_pieces(text, max(1, len(text)))


def test_little_text_is_held_back_and_the_work_stays_linear() -> None:
    reasoning = ReasoningFilter()
    spaces = " " * 1000

    def send() -> None:
        for _ in range(50):
            assert len(reasoning.feed(f"</think{spaces}")) > 900
        for tags in ("</think>", "<think></think>"):
            assert reasoning.feed(tags * 30_000) == ""

    check_cpu_units(send, below=20)
