"""Text to phonemes for Kokoro, and phonemes to symbol ids for VITS."""

import pytest

from models.errors import UnsupportedLanguage
from models.tts.espeak_ng import espeak_installed
from models.tts.kokoro.phonemes import SYMBOL_IDS, known, phonemizer_for
from models.tts.piper import phoneme_ids
from pipelines.text.normalisation.normaliser import normalise

needs_espeak = pytest.mark.skipif(not espeak_installed(), reason="needs the extra `espeak`")


def test_english_homographs_are_read_by_their_part_of_speech() -> None:
    english = phonemizer_for("en")
    assert english("I will read it.") != english("I have read it.").replace("hæv", "wɪl")
    assert "ɹˈɛd" in english("I have read it.")


def test_british_english_has_its_own_vowels() -> None:
    assert phonemizer_for("en", british=True)("A bath.") != phonemizer_for("en")("A bath.")


@pytest.mark.parametrize("language", ["ar", "en", "ja", "zh"])
@pytest.mark.parametrize("dash", ["--", " -- ", "—", " - ", "——"])
def test_dashes_are_pauses(language: str, dash: str) -> None:
    letters = "你好" if language in ("ja", "zh") else "Ana"
    text = normalise(f"{letters}{dash}{letters}", language)
    assert "—" in phonemizer_for(language)(text)


def test_chinese_polyphonic_characters_are_read_by_their_word() -> None:
    phonemes = phonemizer_for("zh")("银行行长，你好。")
    assert phonemes == "i↗nxa↗ŋ xa↗ŋꭧa↓ŋ, ni↓ xau↓." or phonemes.startswith("i↗nxa↗ŋ xa↗ŋꭧa↓ŋ,")
    assert phonemes.endswith("xau↓.")


def test_english_words_in_chinese_text_are_read_as_english() -> None:
    assert "pˈIθˌɑn" in phonemizer_for("zh")("我用Python写程序。")


def test_quotes_and_english_words_in_japanese_text_are_kept() -> None:
    phonemes = phonemizer_for("ja")("「Python」が好き！")
    assert phonemes.startswith("“pˈIθˌɑn”") and phonemes.endswith("sɨkʲi!")


@pytest.mark.parametrize(
    ("language", "text", "phonemes"),
    [
        pytest.param("fr", "Bonjour, ça va ?", "bɔ̃ʒˈuʁ, sa vˈa?", marks=needs_espeak),
        pytest.param("es", "¿Qué tal?", "kˈe tˈal?", marks=needs_espeak),
        pytest.param("hi", "रुको। चलो", "ɾˈʊkoː. cˈʌloː", marks=needs_espeak),
        pytest.param("ja", "私は東京へ行きます。", "βataɕi βa toːkʲoː e ikʲimasɨ.", id="particles"),
        pytest.param("ja", "ティッシュ、チェス", "tʲiʔɕɨ, ʨesɨ", id="small kana join their mora"),
    ],
)
def test_a_text_and_its_marks_are_pronounced(language: str, text: str, phonemes: str) -> None:
    assert phonemizer_for(language)(text).replace(" ?", "?") == phonemes


@needs_espeak
def test_language_switch_flags_of_espeak_are_removed() -> None:
    phonemes = phonemizer_for("hi")("मैं computer चलाता हूँ।")
    assert "(" not in phonemes and "kəmpjˈuːtə" in phonemes


@needs_espeak
def test_a_language_without_a_phonemizer_is_refused() -> None:
    with pytest.raises(UnsupportedLanguage, match="xx"):
        phonemizer_for("xx")


def test_symbols_outside_the_kokoro_vocabulary_are_dropped() -> None:
    assert known("a͡b̪c🙂") == "abc"
    assert set(known("həlˈO ðˈɛɹ.")) <= set(SYMBOL_IDS)


def test_vits_ids_have_a_pad_after_each_phoneme() -> None:
    table = {"_": [0], "^": [1], "$": [2], "a": [14], "b": [15]}
    assert phoneme_ids("ab?", table) == [1, 0, 14, 0, 15, 0, 2]
    assert phoneme_ids("?", table) == []
