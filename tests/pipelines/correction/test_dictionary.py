"""Replacements by the caller's dictionary."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.correction.dictionary import Dictionary
from pipelines.correction.edits import apply_edits
from pipelines.correction.request import DictionaryEntry

WORDS = st.text("ab İſẞ+.-'", min_size=1, max_size=4)
ENTRIES = st.lists(st.builds(DictionaryEntry, WORDS, st.text("ab x+", max_size=5)), max_size=5)


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    dictionary = Dictionary([DictionaryEntry(*pair) for pair in pairs])
    return apply_edits(text, list(dictionary.edits(text)))


@given(st.text("abAB İiſsẞßK+.-'", max_size=30), ENTRIES)
@example("ſ s", [DictionaryEntry("S", "x")])
def test_no_dictionary_term_remains_outside_of_replacements(
    text: str, entries: list[DictionaryEntry]
) -> None:
    dictionary = Dictionary(entries)
    edits = list(dictionary.edits(text))
    corrected = apply_edits(text, edits)
    inserted = []
    shift = 0
    for edit in edits:
        inserted.append((edit.start + shift, edit.start + shift + len(edit.replacement)))
        shift += len(edit.replacement) - (edit.end - edit.start)
    for found in dictionary.edits(corrected):
        assert any(
            found.start < end
            and start < found.end
            or start == end
            and found.start <= start <= found.end
            for start, end in inserted
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k8s and K8S", "Kubernetes and Kubernetes"),
        ("ak8s k8sa k8s's", "ak8s k8sa Kubernetes's"),
        ("in New York cities", "in NYC cities"),
        ("in New\nYork", "in NYC"),
        ("New York City", "the city"),
        ("us and US", "we and USA"),
        ("`k8s` at https://x.org/k8s", "`Kubernetes` at https://x.org/Kubernetes"),
        ("我在北京大学", "我在Peking大学"),
        ("cafe\u0301", "cafe\u0301"),
        ("C++ and c++11", "CPP and CPP11"),
    ],
)
def test_terms_match_whole_words_of_any_case_and_the_longest_wins(text: str, expected: str) -> None:
    pairs = [
        ("k8s", "Kubernetes"), ("new york", "NYC"), ("New York City", "the city"), ("us", "we"),
        ("US", "USA"), ("北京", "Peking"), ("cafe", "coffee house"), ("C++", "CPP"),
    ]  # fmt: skip
    assert replaced(text, *pairs) == expected


def test_a_replacement_is_not_replaced_again() -> None:
    assert replaced("a b", ("a", "b"), ("b", "a b")) == "b a b"


def test_the_first_of_equal_dictionary_terms_wins() -> None:
    assert replaced("a", ("a", "1"), ("a", "2")) == "1"
    assert replaced("A", ("a", "1"), ("a", "2")) == "1"


def test_a_replacement_may_be_empty() -> None:
    assert replaced("um, yes", ("um, ", "")) == "yes"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We met Acme.", "We met ACME Corp."),
        ("Acme. And he", "ACME Corp. And he"),
        ("Acme? acme.com", "ACME Corp.? ACME Corp..com"),
    ],
)
def test_a_replacement_ending_with_a_full_stop_does_not_double_it(text: str, expected: str) -> None:
    assert replaced(text, ("acme", "ACME Corp.")) == expected
