"""Transcripts in the scripts of their languages."""

import unicodedata

import pytest
from babel.core import get_global

from benchmarks.harness.speech import SENTENCES_FILE
from configs.load import load_yaml
from models.scripts import SCRIPTS, letters_outside
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.stt.tokens import REPETITIVE, compression_ratio
from models.stt.whisper.engine import WhisperEngine
from models.stt.whisper.indian_scripts import INDIAN
from models.stt.whisper.native_script import ScriptTokens, writer_of
from models.weights.store import WeightStore
from tests.models.sounds import speak

SENTENCES = load_yaml(dict[str, list[str]], str(SENTENCES_FILE))
LANGUAGES = "hi bn gu kn ml mr pa te ta ur ar fa th el ru uk he zh ja ko".split()
OTHERS = "Wi-Fi 5G, 3.5 % – «OK»! café"


def own_share(text: str, language: str) -> float:
    letters = [one for one in text if unicodedata.category(one)[0] == "L"]
    foreign = letters_outside(frozenset({language}))
    return sum(ord(one) > 0x250 and not foreign.match(one) for one in letters) / len(letters)


@pytest.mark.weights
def test_every_language_outside_the_latin_script_has_the_script_of_the_cldr(
    engine: WhisperEngine,
) -> None:
    scripts = {
        code: get_global("likely_subtags").get(code, "_Latn").split("_")[1]
        for code in engine.capabilities.languages
    }
    listed = {code for *_, codes in SCRIPTS for code in codes}
    assert {code for code, script in scripts.items() if script != "Latn"} == listed & set(scripts)
    first = {code: min(row[0] for row in SCRIPTS if code in row[2]) for code in listed}
    for code in listed & set(scripts):  # languages of one script share its letters
        for other in listed & set(scripts):
            assert (scripts[code] == scripts[other]) == (first[code] == first[other]) or {
                scripts[code],
                scripts[other],
            } <= {"Jpan", "Hans", "Hant"}


@pytest.mark.weights
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_token_of_a_text_in_its_own_script_is_forbidden(
    engine: WhisperEngine, language: str
) -> None:
    vocabulary = engine._whisper.hf_tokenizer
    forbidden = set(ScriptTokens(vocabulary).forbidden(language))
    letters = (
        chr(number)
        for first, last, codes in SCRIPTS
        if language in codes
        for number in range(first, min(last, 0xFFFF) + 1)
        if unicodedata.category(chr(number))[0] in "LMN"
    )
    for text in [*SENTENCES[language], OTHERS, *letters]:
        for written in (text, f" {text}", f"a{text}"):
            used = vocabulary.encode(written, add_special_tokens=False).ids
            assert forbidden.isdisjoint(used), text


@pytest.mark.weights
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_in_another_script_has_a_forbidden_token(
    engine: WhisperEngine, language: str
) -> None:
    vocabulary = engine._whisper.hf_tokenizer
    forbidden = set(ScriptTokens(vocabulary).forbidden(language))
    for other in LANGUAGES:
        if other == "gu":  # has no token of its own: it is written byte by byte
            continue
        if {language, other} <= INDIAN or not letters_outside(frozenset({language})).search(
            SENTENCES[other][0]
        ):
            continue
        for text in SENTENCES[other]:
            assert not forbidden.isdisjoint(vocabulary.encode(text, add_special_tokens=False).ids)


@pytest.mark.weights
def test_a_language_in_the_latin_script_forbids_nothing(engine: WhisperEngine) -> None:
    tokens = ScriptTokens(engine._whisper.hf_tokenizer)
    assert {tokens.forbidden(code) for code in ("en", "de", "vi", "tr", "sw")} == {()}


@pytest.mark.parametrize(
    ("language", "heard", "written"),
    [
        ("hi", "मेरा नाम آج Anna है। 5G 「�」", "मेरा नाम Anna है। 5G 「」"),
        ("ur", "میرا नाम Anna ہے", "میرا Anna ہے"),
        ("ru", "Привет, мир! שלום OK", "Привет, мир! OK"),
        ("ja", "今日はとてもいいです。안녕", "今日はとてもいいです。"),
        ("zh", "今天天气すごい", "今天天气"),
        ("sr", "Добар дан, dobar dan", "Добар дан, dobar dan"),
        ("en", "Привет, β and 你好", "Привет, β and 你好"),
    ],
)
def test_letters_of_other_scripts_are_left_out(language: str, heard: str, written: str) -> None:
    assert writer_of(heard, language)(heard) == written


@pytest.mark.parametrize(
    ("language", "heard", "written"),
    [
        ("bn", "Amora Kaal Shokali Kolkata Jab.", "আমরা কাল শকালি কল্কাতা জাব."),
        ("kn", "Namage batti ishta", "ನಮಗೆ ಬತ್ತಿ ಇಶ್ತ"),
        ("hi", "Mera naam Rahul", "मेरा नाम रहुल"),
        ("ta", "Kaapi venum", "காபி வெநும்"),
        ("pa", "UPI kya hai", "ਉਪਿ ਕ੍ਯਾ ਹੈ"),
        ("pa", "ਮੇਰਾ ਨਾਮ UPI ਹੈ", "ਮੇਰਾ ਨਾਮ UPI ਹੈ"),
        ("bn", "அமர் பொன் THEK FALL", "অমর্ পোন্ থেক ফাল্ল"),
        ("ru", "Privet", "Privet"),
        ("ml", "இன்னு காலா വസ്ത", "ഇന്നു കാലാ വസ്ത"),
        ("hi", "ਮੇਰਾ ਨਾਮ। क़लम", "मेरा नाम। क़लम"),
        ("ta", "ಕಾಗದ", "காகத"),
        ("te", "இருju vatha bagundi", "ఇరుజు వత బగుంది"),
    ],
)
def test_speech_of_india_by_its_sound_is_written_in_its_script(
    language: str, heard: str, written: str
) -> None:
    assert writer_of(heard, language)(heard) == written


@pytest.mark.parametrize("language", ["hi", "bn", "kn", "ml", "ta", "te", "th", "en"])
def test_plain_sentences_are_no_repetition_in_any_script(language: str) -> None:
    assert compression_ratio(" ".join(SENTENCES[language])) < REPETITIVE
    assert compression_ratio(" ".join(SENTENCES[language][:1] * 12)) > REPETITIVE


@pytest.mark.weights
@pytest.mark.slow
def test_speech_is_written_in_the_script_of_its_language_in_one_batch(
    engine: WhisperEngine, weights: WeightStore
) -> None:
    clips = {
        code: speak(SENTENCES[code][1], weights, code, "tts/kokoro" if code != "en" else "tts/vits")
        for code in ("hi", "en", "ta", "bn", "mr")
    }
    options = RecognitionOptions(words=True)
    requests = [
        TranscriptionRequest(pcm, language=code, options=options) for code, pcm in clips.items()
    ]
    translated = TranscriptionRequest(
        clips["hi"], language="hi", options=RecognitionOptions(translate=True)
    )
    *transcripts, english = engine.transcribe([*requests, translated])
    for code, transcript in zip(clips, transcripts, strict=True):
        (segment,) = transcript.segments
        share = own_share(segment.text, code)
        assert share >= 0.98 if code != "en" else share == 0, segment.text
        assert "".join(word.word for word in segment.words) == segment.text.replace(" ", "")
        assert segment.end <= len(clips[code]) / STT_SAMPLE_RATE
    assert all(segment.text.isascii() for segment in english.segments)
