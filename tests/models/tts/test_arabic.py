"""Arabic: vowel marks that the network restores, and how vowelled text is read."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tts.arabic import arabic_phonemes, with_vowels
from models.tts.base import SynthesisRequest
from models.tts.espeak_ng import espeak_installed, espeak_library
from models.tts.kokoro.phonemes import phonemizer_for
from tests.models.tts.loaded import loaded

jiwer = pytest.importorskip("jiwer")

pytestmark = pytest.mark.weights

VOWELLED = (
    "الطَّقْسُ جَمِيلٌ الْيَوْمَ فِي الْمَدِينَةِ.",
    "ذَهَبَ الْوَلَدُ إِلَى الْمَدْرَسَةِ فِي الصَّبَاحِ.",
    "أُرِيدُ أَنْ أَشْرَبَ كُوبًا مِنَ الْمَاءِ.",
    "تَعْمَلُ أُمِّي فِي مُسْتَشْفًى كَبِيرٍ.",
    "هَذَا الْكِتَابُ مُفِيدٌ جِدًّا لِلطُّلَّابِ.",
    "سَافَرَ أَخِي إِلَى الْقَاهِرَةِ قَبْلَ أُسْبُوعٍ.",
    "نُحِبُّ أَنْ نَأْكُلَ الْخُبْزَ مَعَ الْجُبْنِ.",
    "الْبَيْتُ قَرِيبٌ مِنَ الْبَحْرِ.",
)


def bare(text: str) -> str:
    """`text` without vowel marks; letters keep their hamza."""
    return re.sub("[\u064b-\u0652]", "", text)


def skeleton(text: str) -> str:
    """`text` without marks and lengthening."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(
        letter for letter in decomposed if not "\u064b" <= letter <= "\u0655" and letter != "ـ"
    )


def read(text: str) -> str:
    return arabic_phonemes(text, lambda words: f"<{words}>").replace("<>", "")


def test_text_without_vowels_is_read_nearly_as_with_them() -> None:
    references = [read(text) for text in VOWELLED]
    hypotheses = [read(bare(text)) for text in VOWELLED]
    assert jiwer.cer(references, hypotheses) <= 0.04


@pytest.mark.parametrize("text", ["كَتَبَ", "كُتِبَ", "مُدَرِّسَةٌ", "عَلِمَ", "عُلِّمَ"])
def test_words_with_vowels_keep_them(text: str) -> None:
    restored = with_vowels(text)
    assert unicodedata.normalize("NFC", restored) == unicodedata.normalize("NFC", text)


def test_single_marks_of_the_writer_decide_between_readings() -> None:
    assert read("هذا مُدرس") == read("هذا مدرس") == "hˈaðaː mudˈarris"
    assert "عُ" in with_vowels("عُلم الدرس") and "عَ" in with_vowels("عَلم الدرس")


def test_lengthened_words_are_read_as_others() -> None:
    assert read("تــــــارـــيخ") == read("تاريخ")


def test_quotations_with_vowels_keep_them_among_words_without() -> None:
    text = "ومنهم من فسره: {وَمَآ أَنتَ بِمُؤْمِنٍ لَّنَا وَلَوْ كُنَّا صَادِقِينَ} وكذلك"
    restored = unicodedata.normalize("NFC", with_vowels(text))
    quoted = unicodedata.normalize("NFC", text[text.index("{") : text.index("}")])
    assert quoted in restored and "مِنْهُمْ" in restored and "كَذَلِكَ" in restored


def test_a_hamza_that_is_written_stays_and_a_missing_one_is_restored() -> None:
    assert "إِلَى" in with_vowels("ذهب إلى البيت")
    assert "أَ" in with_vowels("اكل الولد الخبز")


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("ابتثجحدرسشصطعغفقكلمنهويىةءأإآؤئ ـَُِّْ.,؟aé5न्あ"), max_size=40))
def test_only_marks_are_added(text: str) -> None:
    assert skeleton(with_vowels(text)) == skeleton(text)
    assert phonemizer_for("ar")(text) is not None


def test_a_text_of_tatweel_alone_has_no_sound() -> None:
    assert with_vowels("\u0640\u0640") == "" and phonemizer_for("ar")("\u0640") == ""


@pytest.mark.parametrize("text", ["Hello.", "नमस्ते", "", "5 + 5", "café", "\u064e"])
def test_text_of_other_scripts_is_unchanged(text: str) -> None:
    assert with_vowels(text) == text


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("الْقَمَرُ وَالشَّمْسُ", "ʔalqˈɑmaru waʃʃˈams"),
        ("بِالشَّمْسِ لِلشَّمْسِ كَالشَّمْسِ.", "biʃʃˈamsi liʃʃˈamsi kaʃʃˈams."),
        ("فِي الْبَيْتِ، إِلَى الْبَيْتِ", "fˈil bˈajt, ʔˈilal bˈajt"),
        ("كِتَابٌ جَمِيلٌ", "kitˈaːbun ʤamˈiːl"),
        ("رَأَيْتُ كِتَابًا", "raʔˈajtu kitˈaːbaː"),
        ("جِدًّا، جِدّاً", "ʤˈiddaː, ʤˈiddaː"),
        ("مَدْرَسَةٌ كَبِيرَةٌ", "madrˈasatun kabˈiːra"),
        ("مَدْرَسَتِي", "madrˈasatiː"),
        ("هُوَ الَّذِي", "hˈuwal lˈaðiː"),
        ("بِسْمِ اللَّهِ الرَّحْمَنِ الرَّحِيمِ", "bˈismil lˈaːhir rˈahmanir rahˈiːm"),
        ("وَاللَّهِ لَهُ وَلَهُ", "wallˈaːhi lˈahu wˈalah"),
        ("اسْتَقْبَلَ الضَّيْفَ", "ʔistˈɑqbalɑd dˈɑjf"),
        ("اُكْتُبْ", "ʔˈuktub"),
        ("وَاجْتَمَعُوا", "waʤtˈamaʔuː"),
        ("الْآنَ، قُرْآنٌ", "ʔalʔˈaːn, qurʔˈaːn"),
        ("مُسْتَشْفًى عَلَى", "mustˈaʃfan ʔˈalaː"),
        ("عَرَبِيٌّ، الْعَرَبِيَّةُ", "ʔˈarabiː, ʔalʔarabˈijja"),
        ("مُعَلِّم", "muʔˈallim"),
        ("سُؤَالٌ، مَسْؤُولٌ", "suʔˈaːl, masʔˈuːl"),
        ("أَهْلاً وَسَهْلاً؟", "ʔˈahlan wasˈahlaː?"),
        ("قَالَ Microsoft إِنَّ", "qˈɑːla <Microsoft> ʔˈinna"),
    ],
)
def test_vowelled_text_is_read_by_the_rules_of_the_standard(text: str, phonemes: str) -> None:
    assert read(text) == phonemes


def test_hamza_is_no_consonant_to_kokoro() -> None:
    assert phonemizer_for("ar")("سَأَلَ أَحْمَدُ") == "sˈaala ˈahmad"


def test_english_words_in_arabic_text_are_read_as_english() -> None:
    assert "mˈIkɹOsˌɔft" in phonemizer_for("ar")("قال Microsoft هذا")


@pytest.mark.skipif(not espeak_installed(), reason="needs the extra `espeak`")
def test_voices_with_phonemes_of_espeak_read_the_vowels_too() -> None:
    assert "muħˈammad" in espeak_library().phonemes("ذهب محمد إلى البيت", "ar")


def test_word_times_have_the_places_of_the_words_that_were_written() -> None:
    engine, _ = loaded("kokoro")
    text = "ذهب الولدُ إلى المدرسة، في الصباح."
    request = SynthesisRequest(text, "ar:ff_siwis", "ar", timings=True)
    times = [time for chunk in engine.synthesize(request) for time in chunk.words]
    assert [text[time.text_start : time.text_end] for time in times] == text.split()
    assert all(
        before.text_end <= after.text_start for before, after in zip(times, times[1:], strict=False)
    )
