"""Protected spans and names, and the passages of prose between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.correction.passages import cut
from pipelines.correction.protection import names, protected_spans


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("See https://ex.com/a_b?x=1, or mail a.b@c.org.", ["https://ex.com/a_b?x=1", "a.b@c.org"]),
        ("Call +1 555-123-4567 at 10:30", ["+1", "555-123-4567", "10:30"]),
        ("on 2024-05-06 for $5.00 or 20%", ["2024-05-06", "$5.00", "20%"]),
        ("Run `rm -rf x` in ~/src/main.py", ["`rm -rf x`", "~/src/main.py"]),
        ("foo_bar and camelCase, NASA", ["foo_bar", "camelCase", "NASA"]),
        ("@john likes #tags 😀👍🏽 :)", ["@john", "#tags", "😀👍🏽", ":)"]),
        ("{name} {{ x }} %s <b>", ["{name}", "{{ x }}", "%s", "<b>"]),
        ("```\nim code\n```\nim not", ["```\nim code\n```"]),
        ("gr8 work", []),
    ],
)
def test_protected_spans_are_found(text: str, held: list[str]) -> None:
    spans = protected_spans(text, frozenset({"gr8"}))
    assert [text[span.start : span.end] for span in spans] == held


def test_names_are_capitalised_words_within_sentences() -> None:
    assert set(names("Yesterday I met Marta. She is nice, said O'Rourke.")) == {"marta", "o'rourke"}


ODD = ["a", "1", "`", "a.", "/", "{", "@", "a-", "_", "a1", "😀", "A", "~~~\n", "aA", "a_", "'"]


@pytest.mark.parametrize("odd", [*ODD, "a@", "A'", "%(", "://"])
@pytest.mark.timeout(30)  # seconds; tens of times less with bounded patterns
def test_protection_takes_bounded_time_on_repetitive_text(odd: str) -> None:
    text = (odd * 20_000)[:20_000]
    protected_spans(text)
    names(text)


@given(st.text("ab. \n`!?A-1。", max_size=120), st.integers(5, 30))
def test_passages_cover_the_text_in_order_within_the_limit(text: str, most: int) -> None:
    pieces = list(cut(text, most))
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert all(piece.end - piece.start <= most for piece in pieces if piece.is_prose)
    assert all(text[piece.start : piece.end].strip() for piece in pieces if piece.is_prose)


def test_wrapped_lines_are_one_passage_and_list_items_are_separate() -> None:
    text = "This is a line of an e-mail that is wrapped by a program\nand goes on.\n- one\n- two"
    assert [text[p.start : p.end] for p in cut(text, 600) if p.is_prose] == [
        "This is a line of an e-mail that is wrapped by a program\nand goes on.", "- one", "- two",
    ]  # fmt: skip
