"""The language that a text without a named voice is read in.

Each line of `language_cases/` has a language and a text. `names_*.tsv` have names (of 17 locales,
by Faker), brands, and loan words of English (by Wikipedia) or in seven other languages, in short
texts; `sentences.tsv` has whole sentences. Names, brands, words and frames were split by their
hash: rules and words were written by the tuned half. `names_fresh.tsv` was written later: names of
https://github.com/sigpwned/popular-names-by-country-dataset (CC0), and loan words of public lists.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.base import ModelInfo, VoiceInfo
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from tests.pipelines.tts.test_pipeline import CONFIG, ScriptedSpeaker

CASES = Path(__file__).parent / "language_cases"
LANGUAGES = tuple("en hi ar fr de es it nl pl pt bn gu kn ml mr pa ta te ja zh".split())
LATIN = ("en", "de", "fr", "es", "it", "nl", "pl", "pt")
VOICES = tuple(VoiceInfo("x", code, code, code, "female", "Neutral") for code in LANGUAGES)
INFO = ModelInfo("svc/x", "tts", "x", "x", 0, LANGUAGES, sample_rate=16_000, voices=VOICES)


def speech() -> SpeechPipeline:
    return SpeechPipeline({"x": ScriptedSpeaker(INFO)}, CONFIG)


def cases(name: str) -> Iterator[tuple[str, str]]:
    for line in (CASES / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        language, _, text = line.partition("\t")
        yield language, text


async def language_of(pipeline: SpeechPipeline, text: str, workspace_id: int | None = None) -> str:
    plan = await pipeline.plan(SpeechRequest(text, workspace_id=workspace_id))
    return plan.voice.language


async def shares(name: str) -> dict[bool, float]:
    """The share of texts whose language is right: of the English ones (True) and of the others."""
    right = defaultdict[bool, list[bool]](list)
    pipeline = speech()
    for language, text in cases(name):
        right[language == "en"].append(await language_of(pipeline, text) == language)
    return {is_english: sum(rights) / len(rights) for is_english, rights in right.items()}


@pytest.mark.parametrize("half", ["tuned", "held_out", "fresh"])
async def test_names_brands_and_loan_words_do_not_choose_the_voice(half: str) -> None:
    share = await shares(f"names_{half}")
    assert share[True] >= 0.98
    assert share[False] >= 0.96


async def test_sentences_are_read_by_a_voice_of_their_language() -> None:
    pipeline = speech()
    wrong = [text for code, text in cases("sentences") if await language_of(pipeline, text) != code]
    assert wrong == []


@pytest.mark.parametrize("expected", ["en", "es"])
async def test_a_conversation_follows_a_sentence_in_another_language(expected: str) -> None:
    directory = speech().directory
    wrong = [
        text
        for language, text in cases("sentences")
        if await directory.language_of(text, None, expected) != language
    ]
    assert wrong == []


async def test_a_stand_in_follows_the_text_and_keeps_its_language_in_doubt() -> None:
    pipeline = speech()
    for text, expected, language in (
        ("Anna Ferrari!", "de", "de"),
        ("Wo ist hier der Bahnhof, bitte?", "en", "de"),
        ("Where is the station, please?", "de", "en"),
    ):
        plan = await pipeline.plan(SpeechRequest(text, voice="fr", expected=expected))
        assert (plan.voice.language, plan.first.language) == (language, language)


@pytest.mark.parametrize("expected", LATIN)
async def test_a_lone_name_keeps_the_language_of_the_conversation(expected: str) -> None:
    directory = speech().directory
    names = (CASES / "lone_names.txt").read_text(encoding="utf-8").splitlines()
    changes = [
        name
        for name in names
        for text in (name, f"{name}!", f"{name}, {name}.")
        if await directory.language_of(text, None, expected) != expected
    ]
    assert len(changes) <= 0.01 * 3 * len(names), changes


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("请打开 Settings 页面。", "zh"),
        ("我喜欢 Python 编程。", "zh"),
        ("iPhone 15を買いました。", "ja"),
        ("मैं Python सीखता हूँ।", "hi"),
        ("أحب Python.", "ar"),
        ("আমি Android Studio ব্যবহার করি।", "bn"),
        ("My name is 田中.", "en"),
        ("The word 你好 means hello.", "en"),
        ("Sag 你好 zu ihm.", "de"),
    ],
)
async def test_latin_names_leave_a_text_of_another_script_its_voice(
    text: str, language: str
) -> None:
    assert await language_of(speech(), text) == language


async def test_an_open_text_is_read_in_the_language_of_the_workspace() -> None:
    pipeline = speech()
    german = ("Der Zug nach Hamburg fährt heute später.", "Wo ist denn hier der nächste Bahnhof?",
              "Das Treffen beginnt morgen um zehn Uhr.")  # fmt: skip
    for number, text in enumerate(german):
        assert await language_of(pipeline, "Anna Ferrari!", 1) == "en", number
        assert await language_of(pipeline, text, 1) == "de"
    assert await language_of(pipeline, "Anna Ferrari!", 1) == "de"
    assert await language_of(pipeline, "Anna Ferrari!", 2) == "en"  # another workspace
    assert await language_of(pipeline, "Anna Ferrari!") == "en"  # none
    assert await language_of(pipeline, "The train to Hamburg is late today.", 1) == "en"
    assert await language_of(pipeline, "Anna Ferrari!", 1) == "en"  # it speaks two
