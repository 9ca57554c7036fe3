"""Cleaning of text before it is spoken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.text.segmentation import clean, is_speakable
from tests.cpu_time import check_cpu_units


@given(st.text(max_size=200))
def test_cleaning_is_idempotent(text: str) -> None:
    once = clean(text)
    assert clean(once) == once


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\u0000b\tc", "a b c"),
        ("\u202eabc\u202c\u200b", "abc"),
        ("ＡＢＣ１２", "ABC12"),
        ("\U0001d5db\U0001d5f6", "Hi"),
        ("a\u00a0b", "a\u00a0b"),
        ("क्\u200dष", "क्\u200dष"),
        ("20°C", "20°C"),
        ("S\u0336o\u0336 u\u0332p 5\ufe0f\u20e3", "So up 5"),
        ("e\u0301 o\u0308 x \u2260 y", "é ö x ≠ y"),
        ("\u01c7\u200d\u0628", "LJ\u0628"),
        ("Ⓞⓝ ⒯⒣⒠ 🄳🅞🆃", "On the DOT"),
        ("Type 🅰\ufe0f", "Type A"),
        ("\ufe8d\ufedf\ufeb4\ufefc\ufee1", "السلام"),
        ("\ufe8d\u0654", "أ"),
        ("محمد \ufdfa", "محمد صلى الله عليه وسلم"),
        ("5 ﷼", "5 ﷼"),
    ],
)
def test_invisible_characters_are_removed_and_letters_normalised(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize("text", ["", "...", "\U0001f600", "\u200b\u202e", "!?", "$ %"])
def test_text_without_letters_is_not_speakable(text: str) -> None:
    assert not is_speakable(clean(text))


@pytest.mark.parametrize("unit", ["9", "a ", "\u200d", "\U0001f600", "\u0301", "\ud800"])
def test_cleaning_takes_linear_time(unit: str) -> None:
    text = (unit * 50_000)[:50_000]
    check_cpu_units(lambda: clean(text), below=100)
