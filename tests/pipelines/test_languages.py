"""Names of languages."""

import pytest

from pipelines.languages import name_language


@pytest.mark.parametrize(
    ("code", "name", "native"),
    [
        ("en", "English", "English"),
        ("fr", "French", "français"),
        ("hi", "Hindi", "हिन्दी"),
        ("zh", "Chinese", "中文"),
        ("yue", "Cantonese", "粵語"),
        ("haw", "Hawaiian", "ʻŌlelo Hawaiʻi"),
        ("jw", "Javanese", "Jawa"),
    ],
)
def test_a_language_has_an_english_and_a_native_name(code: str, name: str, native: str) -> None:
    names = name_language(code)
    assert (names.name, names.native_name) == (name, native)


def test_an_unknown_code_names_itself() -> None:
    assert name_language("xx").name == "xx"
