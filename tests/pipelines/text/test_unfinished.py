"""Texts after which their speaker goes on."""

import pytest

from pipelines.text.unfinished import is_unfinished


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I would like to book a...", "en"),
        ("I called you last week because the-", "en"),
        ("When the train arrives.", "en"),
        ("My order number is not", "en"),
        ("We could meet on Monday, um.", "en"),
        ("S’il pleut demain.", "fr"),
        ("Wenn es morgen regnet.", "de"),
        ("Ich habe angerufen, weil", "de"),
        ("cuando llegue el tren", "es"),
    ],
)
def test_texts_that_go_on(text: str, language: str) -> None:
    assert is_unfinished(text, language)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        ("Paris", "en"),
        ("at 7.30", "en"),
        ("Not yet.", "en"),
        ("I like that.", "en"),
        ("When does the train arrive?", "en"),
        ("When the train arrives, call me.", "en"),
        ("A las siete", "es"),
        ("J'en veux une.", "fr"),
        ("Wenn der Zug ankommt, rufen Sie mich an.", "de"),
        ("今天的天气非常好", "zh"),  # the recogniser often leaves out the mark
        ("Sıradan bir cümle burada", "tr"),
    ],
)
def test_texts_that_may_be_all(text: str, language: str) -> None:
    assert not is_unfinished(text, language)
