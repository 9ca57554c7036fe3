"""Names of languages."""

import pytest

from pipelines.languages import engine_codes, name_language


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


def test_a_code_that_iso_withdrew_is_shown_and_understood_as_todays() -> None:
    assert name_language("jw").code == "jv"
    assert "jw" in engine_codes("jv")


@pytest.mark.parametrize(
    ("named", "code"), [("en-US", "en"), (" PT_br ", "pt"), ("nb", "no"), ("fil-PH", "tl")]
)
def test_a_language_is_understood_by_the_names_that_callers_use(named: str, code: str) -> None:
    assert code in engine_codes(named)
