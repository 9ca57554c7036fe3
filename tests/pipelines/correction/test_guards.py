"""Guards against the hallucinations of a language model in corrections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.correction.guards import refusal

TEXT = "Please send 25 copies of the report to Marta at m.k@example.com before Friday."
SPANS = [
    "42", "$5.00", "2024-05-06", "10:30", "https://example.com/a?b=1", "m.k@example.com", "`x = 1`",
    "/etc/hosts", "@marta", "#release", "😀", "{name}", "userName", "NASA", "v1.2.3", "%s",
]  # fmt: skip


@pytest.mark.parametrize(
    ("proposed", "reason"),
    [
        ("", "empty"),
        ("Sure! " + TEXT, "chatter"),
        ("Here is the corrected text: " + TEXT, "chatter"),
        (TEXT + " I hope that this helps you with all that you wanted to know about it.", "length"),
        ("Please send copies.", "length"),
        (f'"{TEXT}"', "form"),
        (TEXT.replace(" before", "\nbefore"), "form"),
        (TEXT.replace("25", "26"), "protected"),
        (TEXT.replace("25 ", ""), "protected"),
        (TEXT.replace("m.k@", "k.m@"), "protected"),
        (TEXT.replace("Marta", "Maria"), "names"),
        (TEXT.replace("report to", "report by Tom to"), "names"),
        (TEXT.replace("Please send", "Please do not send"), "negation"),
        (TEXT.replace("copies", "two copies"), "numbers"),
        ("Пожалуйста отправьте 25 копий отчёта Marta на m.k@example.com до Friday.", "names"),
        (TEXT.replace("copies of the report", "pictures of a garden"), "meaning"),
    ],
)
def test_an_unfaithful_correction_is_refused_with_a_reason(proposed: str, reason: str) -> None:
    assert refusal(TEXT, proposed, rewords=False) == reason


@pytest.mark.parametrize(
    ("original", "proposed", "rewords"),
    [
        ("he go to Berlin in 2024", "He goes to Berlin in 2024.", False),
        ("i dont no", "I don't know.", False),
        ("Please beleive me.", "Please believe me.", False),
        ("I want the report now.", "I would like the report now, please.", True),
        ("Give me the report now.", "Please provide the report immediately.", True),
        ("We won't pay the invoice 4711.", "We will not pay the invoice 4711.", True),
        ("Send it to me today.", "Could you please send it to me today?", True),
        ("Ich habe gegessen Brot.", "Ich habe Brot gegessen.", False),
    ],
)
def test_a_faithful_correction_is_accepted(original: str, proposed: str, rewords: bool) -> None:
    assert refusal(original, proposed, rewords=rewords) is None


GERMAN = "Wir treffen Herrn Meier und Anna Kowalczyk nicht am Banhof in zwei Wochen."


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Banhof", "Bahnhof", None),  # a noun is no name
        ("Banhof", "Hotel", "names"),
        ("Meier", "Maier", "names"),
        ("Kowalczyk", "Kowalczik", "names"),
        ("zwei", "drei", "numbers"),
        ("nicht", "wohl", "negation"),
        ("Wir treffen", "Hier ist der Text: Wir treffen", "chatter"),
        (GERMAN, "We do not meet Herrn Meier and Anna Kowalczyk at the station.", "names"),
    ],
)
def test_german_nouns_may_be_respelled_and_names_may_not(
    old: str, new: str, reason: str | None
) -> None:
    assert refusal(GERMAN, GERMAN.replace(old, new), rewords=False, language="de") == reason


@pytest.mark.parametrize(
    ("language", "before", "after", "reason"),
    [
        ("fr", "Il ne vient pas à deux heure.", "Il ne vient pas à deux heures.", None),
        ("fr", "Il ne vient pas à deux heure.", "Il vient à deux heures.", "negation"),
        ("fr", "Il ne vient pas à deux heure.", "Il ne vient pas à trois heures.", "numbers"),
        ("es", "Ellos no va al cine.", "Ellos no van al cine.", None),
        ("es", "Ellos no va al cine.", "Ellos van al cine.", "negation"),
        ("it", "Non abbiamo due gatto.", "Abbiamo due gatti.", "negation"),
        ("pt", "Eu não tem três gatos.", "Eu não tenho dois gatos.", "numbers"),
        ("sv", "Jag har en katter.", "Jag har katter.", None),
    ],
)
def test_negations_and_numbers_are_guarded_in_each_listed_language(
    language: str, before: str, after: str, reason: str | None
) -> None:
    assert refusal(before, after, rewords=False, language=language) == reason


@given(
    st.sampled_from(SPANS), st.sampled_from(["", "7", "x1", "http://evil.example"]), st.booleans()
)
def test_a_change_of_a_protected_span_is_refused(span: str, other: str, rewords: bool) -> None:
    text = f"We saw {span} there yesterday evening, as was said."
    assert refusal(text, text, rewords=rewords) is None
    assert refusal(text, text.replace(span, other), rewords=rewords) is not None


@given(st.text(max_size=80), st.text(max_size=80), st.booleans())
def test_guards_judge_any_texts_without_errors(original: str, proposed: str, rewords: bool) -> None:
    refusal(original, proposed, rewords=rewords)


@given(st.text("Ab1 .?'😀`\n", min_size=1, max_size=40).filter(str.strip), st.booleans())
def test_an_unchanged_text_is_accepted(text: str, rewords: bool) -> None:
    assert refusal(text, text, rewords=rewords) is None


def test_a_change_of_tone_that_adds_a_sentence_is_refused() -> None:
    said = "Hey, can you send me the slides?"
    added = "Hey! I'm here to help. Can you send me the slides?"
    assert refusal(said, added, rewords=True) == "sentences"


def test_a_change_of_tone_that_drops_a_clause_is_refused() -> None:
    said = "We lost the order and the customer is angry."
    assert refusal(said, "The customer is angry.", rewords=True) is not None
