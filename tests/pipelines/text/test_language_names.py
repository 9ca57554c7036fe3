"""Names, codes and accents of languages."""

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


def test_an_unknown_language_code_is_its_own_name() -> None:
    assert name_language("xx").name == "xx"


def test_a_withdrawn_iso_code_and_its_successor_name_the_same_language() -> None:
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
def test_language_tags_and_iso_639_2_codes_map_to_engine_codes(named: str, code: str) -> None:
    assert code in engine_codes(named)


@pytest.mark.parametrize(
    ("code", "accent"),
    [
        *(("en-GB", "British"), ("EN_uk", "British"), ("eng-Latn-GB", "British")),
        *(("en-US", "American"), ("en", None), ("en-AU", None), ("de-GB", None), ("gb", None)),
    ],
)
def test_the_region_of_a_language_tag_determines_the_accent(code: str, accent: str | None) -> None:
    assert accent_of(code) == accent


def test_is_language_accepts_known_language_codes_only() -> None:
    assert all(map(is_language, ("en", "eng", "de-AT", "PT_br", "haw", "yue", "tl", "jw")))
    assert not any(map(is_language, ("", "xx", "qqq", "english", "12")))
