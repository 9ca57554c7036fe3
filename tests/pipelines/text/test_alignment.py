"""Alignment of the caller's words with the spoken text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.stt.base import Word
from pipelines.text.alignment import align_text
from pipelines.text.chunking import Chunker, FirstChunkPolicy, read_chunks
from pipelines.text.segmentation import spans

LANGUAGES = frozenset("en hi ar fr de es it nl pl pt bn ja zh".split())


def aligned(text: str, language: str) -> list[tuple[str, str]]:
    """Each of the caller's words with the part of the spoken text that says it."""
    return [
        (word.word, chunk.text[word.spoken_start : word.spoken_end])
        for chunk in read_chunks(
            text, languages=frozenset({language}), language=language, words=True
        )
        for word in chunk.words
    ]


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        (
            "en",
            "Dr. Smith  paid $3.50, OK?",
            [
                ("Dr.", "Doctor"),
                ("Smith", "Smith"),
                ("paid", "paid"),
                ("$3.50,", "three dollars and fifty cents,"),
                ("OK?", "OK?"),
            ],
        ),
        ("en", "Hi :smile: you", [("Hi", "Hi"), ("you", "you")]),
        ("en", r"a \n b \begin{align} c", [("a", "a"), ("b", "b"), ("c", "c")]),
        ("en", "- [x] Buy an [x]", [("Buy", "Buy"), ("an", "an"), ("[x]", "x")]),
        ("en", "- [x] Buy an x", [("Buy", "Buy"), ("an", "an"), ("x", "x")]),
        (
            "en",
            'A <a href="https://a.b/c">link</a>, I <3 it <b>this</b> [5] 5',
            [
                *(("A", "A"), ('href="https://a.b/c">link</a>,', "link,"), ("I", "I")),
                *(("it", "it"), ("<b>this</b>", "this"), ("[5]", "five"), ("5", "five")),
            ],
        ),
        ("en", "The text [5] is", [("The", "The"), ("text", "text"), ("is", "is")]),
        ("en", "if x <a b", [("if", "if"), ("x", "x"), ("<a", "a"), ("b", "b")]),
        ("en", "R & D", [("R", "R"), ("&", "and"), ("D", "D")]),
        ("en", "yes – no \U0001f600", [("yes", "yes"), ("no", "no")]),
        ("en", "at 5:30 pm.", [("at", "at"), ("5:30", "five thirty"), ("pm.", "P M.")]),
        ("en", "the the the", [("the", "the")] * 3),
        ("en", "to a.com now", [("to", "to"), ("a.com", "a dot com"), ("now", "now")]),
        ("de", "um 15:30 Uhr", [("um", "um"), ("15:30", "fünfzehn Uhr"), ("Uhr", "dreißig")]),
        ("de", "12,50 € netto", [("12,50", "zwölf Euro und fünfzig Cent"), ("netto", "netto")]),
        ("de", "z. B. das", [("z.", "zum"), ("B.", "Beispiel"), ("das", "das")]),
        ("fr", "1 234 m", [("1", "mille"), ("234", "deux cent trente-quatre"), ("m", "mètres")]),
        (
            "fr",
            "au +33 6 12 34 56 78 N° 12",
            [
                *(("au", "au"), ("+33", "plus trente-trois"), ("6", "six,"), ("12", "douze,")),
                *(("34", "trente-quatre,"), ("56", "cinquante-six,"), ("78", "soixante-dix-huit")),
                *(("N°", "numéro"), ("12", "douze")),
            ],
        ),
        ("hi", "₹500 दो", [("₹500", "पाँच सौ रुपए"), ("दो", "दो")]),
        (  # three words share the last one that is spoken
            "hi",
            "99.50 रुपये ₹2 करोड़",
            [
                ("99.50", "निन्यानवे रुपए पचास पैसे दो करोड़"),
                *(("रुपये", "रु"), ("₹2", "प"), ("करोड़", "ये")),
            ],
        ),
        (
            "zh",
            "你好，2024 OK！",
            [("你", "你"), ("好，", "好，"), ("2024", "两千零二十四"), ("OK！", "OK！")],
        ),
        ("ja", "「はい」と言った。", [(c, c) for c in ("「は", "い」", "と", "言っ", "た。")]),
        ("th", "เด็กดี", [("เด็", "เด็"), ("ก", "ก"), ("ดี", "ดี")]),
        ("en", "\uff28\uff49 a\u0301\u200b", [("\uff28\uff49", "Hi"), ("a\u0301\u200b", "á")]),
    ],
)  # fmt: skip
def test_each_written_word_is_aligned_with_its_spoken_form(
    language: str, text: str, words: list[tuple[str, str]]
) -> None:
    assert aligned(text, language) == words


@given(
    st.text(max_size=120)
    | st.text(st.sampled_from("ab1.,5 $€%-\n你好เด\u0301\u200d\U0001f600\ud800"), max_size=400),
    st.sampled_from(["en", "de", "hi", "zh"]),
    st.booleans(),
)
def test_word_spans_are_ordered_and_disjoint(text: str, language: str, early: bool) -> None:
    position = 0
    policy = FirstChunkPolicy() if early else None
    for chunk in read_chunks(
        text, languages=LANGUAGES, language=language, words=True, chunker=Chunker(policy)
    ):
        spoken = 0
        for word in chunk.words:
            assert text[word.start : word.end] == word.word
            assert position <= word.start < word.end
            assert spoken <= word.spoken_start <= word.spoken_end <= len(chunk.text)
            position, spoken = word.end, word.spoken_end


@given(st.lists(st.text("abcdefgxyz'", min_size=1, max_size=8), min_size=1, max_size=200))
def test_plain_words_are_aligned_with_themselves(words: list[str]) -> None:
    spoken = [word for word in words if any(map(str.isalnum, word))]
    found = aligned(" ".join(words), "en")
    assert [word for word, _ in found] == spoken
    assert all(word.strip("'") == said.strip("'") for word, said in found)


def test_every_word_of_a_long_text_is_aligned_in_order() -> None:
    text = "The quick fox, aged 12, paid $5. " * 500
    found = [word for word, _ in aligned(text, "en")]
    assert found == text.split()


def test_a_script_without_spaces_is_segmented_between_grapheme_clusters() -> None:
    text = "กำลังเรียน"
    assert [text[start:end] for start, end in spans(text)] == ["กำ", "ลั", "ง", "เรี", "ย", "น"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("a b " * 4000, ["a"] * 2000),
        ("a" * 16_000, ["a"] * 2000),
        ("ab" * 8000, ["ba" * 2000] * 2),
        (("ab" * 25 + " ") * 300, ["ba" * 25] * 300),
    ],
)
def test_a_hostile_text_is_aligned_in_seconds(text: str, heard: list[str]) -> None:
    words = [Word(word, place, place + 1, 0.9) for place, word in enumerate(heard)]
    times = align_text(text, words, "en")
    assert [word.word for word in times] == text.split()
    assert all(0 <= word.start_s <= word.end_s <= len(heard) for word in times)


def test_frequent_words_extend_the_matches_of_their_neighbours() -> None:
    text = " ".join(f"the w{letter}x" for letter in "abcdefghijklmnopqrstuvwxyz")
    words = [Word(word, place, place + 1, 1.0) for place, word in enumerate(text.split())]
    times = align_text(text, words, "en")
    assert [word.start_s for word in times] == [word.start for word in words]
    assert not any(word.loss for word in times)
