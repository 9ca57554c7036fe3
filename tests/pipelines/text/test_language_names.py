"""Names of languages."""

import pytest

from pipelines.text.language_names import accent_of, engine_codes, is_language, name_language


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
    ("named", "code"),
    [
        *(("en-US", "en"), (" PT_br ", "pt"), ("nb", "no"), ("fil-PH", "tl")),
        *(("eng", "en"), ("deu", "de"), ("ger", "de"), ("cmn-CN", "zh"), ("iw", "he")),
        *(("tgl", "tl"), ("srp", "sr"), ("yue", "yue")),
    ],
)
def test_a_language_is_understood_by_the_names_that_callers_use(named: str, code: str) -> None:
    assert code in engine_codes(named)


@pytest.mark.parametrize(
    ("code", "accent"),
    [
        *(("en-GB", "British"), ("EN_uk", "British"), ("eng-Latn-GB", "British")),
        *(("en-US", "American"), ("en", None), ("en-AU", None), ("de-GB", None), ("gb", None)),
    ],
)
def test_a_region_may_tell_the_accent(code: str, accent: str | None) -> None:
    assert accent_of(code) == accent


def test_what_names_no_language_is_told_from_what_does() -> None:
    assert all(map(is_language, ("en", "eng", "de-AT", "PT_br", "haw", "yue", "tl", "jw")))
    assert not any(map(is_language, ("", "xx", "qqq", "english", "12")))
