"""The languages of configs/languages.yaml, and those that texts may be detected as."""

from configs.schema.languages import DETECTED, LANGUAGES, language_words
from pipelines.text.language_detection import detect_language

BY_WORDS = "ar bn de en es fa fr gu hi it ja kn ml mr nl pa pl pt ru ta te zh"
BY_NAME = "ba haw ht la mi no oc sa sn su tk tl yi"  # entries that only had a name


def test_texts_may_be_detected_as_the_marked_languages_alone() -> None:
    assert {*BY_WORDS.split(), *BY_NAME.split()} == DETECTED
    assert {"fo", "is", "nb", "nn", "sv"} == LANGUAGES.keys() - DETECTED


def test_an_entry_without_the_mark_changes_no_detection() -> None:
    text = "Jag kommer till stationen klockan tio, men han är redan där."
    assert detect_language(text, DETECTED | {"sv"}) == "sv"
    assert detect_language(text, DETECTED) in DETECTED
    assert "kl" in language_words("sv").goes_on_before_number
