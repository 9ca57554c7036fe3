"""The lazy reading of a text."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.text import segmentation
from pipelines.text.chunking import (
    MAX_CHUNK_LENGTH,
    FirstChunkPolicy,
    TextChunk,
    read_chunks,
    spoken_length,
)
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import BLOCK, clean
from tests.cpu_time import cpu_units
from tests.pipelines.text.sentence_corpus import HARD_CASES, split_sentences

LANGUAGES = frozenset("en hi ar fr de es it nl pl pt bn ja zh".split())
PROSE = (
    "The meeting with Dr. Smith, which had been moved twice, takes place at 3:30 pm. "
    "Nobody knew why! Please bring $3.50, e.g. in coins, and read www.example.com before. "
)
FRENCH = "Bonjour tout le monde, je suis très content de vous voir ici aujourd'hui."


def pieces(
    text: str, language: str | None = "en", *, words: bool = False, early: bool = False
) -> list[TextChunk]:
    policy = FirstChunkPolicy() if early else None
    return list(
        read_chunks(
            text, languages=LANGUAGES, language=language, words=words, first_chunk_policy=policy
        )
    )


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize(("language", "marked"), HARD_CASES)
def test_each_sentence_is_a_piece(language: str, marked: str) -> None:
    sentences = marked.split("|")
    text = ("" if language in ("zh", "ja") else " ").join(sentences)
    found = list(read_chunks(text, languages=frozenset({language}), language=language))
    assert [piece.text for piece in found] == [normalise(one, language) for one in sentences]
    assert all(piece.ends_sentence for piece in found)
    assert [piece.ends_paragraph for piece in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("text", [PROSE * 60, "你好，今天天气很好。我们去公园吧！" * 300])
def test_blocks_leave_no_trace_in_the_pieces(text: str) -> None:
    language = "en" if text.isascii() else "zh"
    assert len(text) > 2 * BLOCK
    assert [piece.text for piece in pieces(text, language)] == [
        normalise(sentence, language) for sentence in split_sentences(text, language)
    ]


@given(
    st.text(st.sampled_from('abcéж你 ठเก\u0301.,;!?\u2019"()-\n\u200d'), max_size=900),
    st.booleans(),
)
def test_every_letter_is_read_once_and_in_order(text: str, early: bool) -> None:
    found = pieces(text, early=early)
    assert letters("".join(piece.text for piece in found)) == letters(clean(text))
    assert all(
        0 < len(piece.text) and spoken_length(piece.text) <= MAX_CHUNK_LENGTH for piece in found
    )


@given(st.text(max_size=300), st.sampled_from([*sorted(LANGUAGES), "xx", None]))
def test_no_text_breaks_it(text: str, language: str | None) -> None:
    for piece in pieces(text, language, early=True):
        assert piece.text == piece.text.strip() != ""


@pytest.mark.parametrize("text", ["", " \n ", "...", "\U0001f600\n\u200b", "$ %", "\n" * 9000])
def test_what_cannot_be_spoken_gives_no_pieces(text: str) -> None:
    assert pieces(text) == []


def test_a_newline_is_a_hard_boundary() -> None:
    found = pieces("one\r\ntwo\n\n ... \nthree. four")
    assert [piece.text for piece in found] == ["one", "two", "three.", "four"]
    assert [piece.ends_paragraph for piece in found] == [True, True, False, True]


def test_a_very_long_paragraph_ends_only_once() -> None:
    found = pieces("word " * 4000)
    assert [piece.ends_paragraph for piece in found[-2:]] == [False, True]
    assert not any(piece.ends_sentence for piece in found[:-1])
    assert letters("".join(piece.text for piece in found)) == "word" * 4000


def test_each_paragraph_is_read_in_its_own_language() -> None:
    text = f"Hello there, this is the first line.\n{FRENCH}\nOK.\nनमस्ते दुनिया\n12\nParis"
    assert [piece.language for piece in pieces(text, "en")] == ["en", "fr", "en", "hi", "en", "en"]
    assert [piece.language for piece in pieces(text, None)] == ["en", "fr", "fr", "hi", "hi", "hi"]


@pytest.mark.parametrize(
    "text",
    [
        "OK.",
        "Paris",
        "Angela Merkel met Emmanuel Macron in Berlin on Monday.",
        "I saw Jean-Claude and Marie at the Gare du Nord in Paris.",
        "San Francisco, Los Angeles, San Diego, Santa Monica",
        "TypeError: cannot read property of undefined",
    ],
)
def test_names_and_short_lines_keep_the_language_of_the_voice(text: str) -> None:
    assert {piece.language for piece in pieces(text, "en")} == {"en"}


def test_a_language_without_a_voice_is_not_chosen() -> None:
    found = list(read_chunks(FRENCH + "\nनमस्ते", languages=frozenset({"en"}), language="en"))
    assert {piece.language for piece in found} == {"en"}


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "The quick brown fox jumps over the lazy dog while the sun sets behind the hills.",
            ["The quick brown fox jumps", "over the lazy dog while the sun sets behind the hills."],
        ),
        (
            "en",
            "When the rain finally stopped, everybody went home and slept for a long time.",
            [
                "When the rain finally stopped,",
                "everybody went home and slept for a long time.",
            ],
        ),
        ("en", "The quick brown fox likes the lazy old dog.", None),  # no breath: whole
        ("en", "Thank you very much for your help.", None),
        (
            "en",
            "I'm sorry, but the reservation you asked for isn't available on that date.",
            ["I'm sorry,", "but the reservation you asked for isn't available on that date."],
        ),
        (
            "de",
            "Leider können wir Ihre Bestellung nicht annehmen, aber wir helfen gern und rufen an.",
            [
                "Leider können wir Ihre Bestellung",
                "nicht annehmen, aber wir helfen gern und rufen an.",
            ],
        ),
        (
            "hi",
            "यह एक बहुत लंबा वाक्य है जो बताता है कि हम कल सुबह दिल्ली जाएंगे और वहाँ रहेंगे।",
            ["यह एक बहुत लंबा वाक्य है", "जो बताता है कि हम कल सुबह दिल्ली जाएंगे और वहाँ रहेंगे।"],
        ),
        (
            "zh",
            "你好世界，今天天气很好，我们去公园散步吧。",
            ["你好世界，今天天气很好，", "我们去公园散步吧。"],
        ),
    ],
)
def test_an_early_start_cuts_the_first_sentence_where_it_breathes(
    language: str, text: str, expected: list[str] | None
) -> None:
    found = pieces(text, language, early=True)
    assert [piece.text for piece in found] == (expected or [text])
    assert [piece.ends_sentence for piece in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Please send $12,345.67 to my old account in Washington today.", "Please send"),
        ("Your order 12345678 will arrive at the end of this long week.", "Your order"),
        ("Call 1-800-555-0199 or write to us whenever you like this week.", "zero one nine nine"),
        (
            "Revenue grew 23.5% to $45.6 billion while costs fell.",
            "twenty-three point five percent",
        ),
        ("The total is $1,234,567.89 and must be paid by 12/31/2025.", "eighty-nine cents"),
        (
            "He left on May 12345 and never came back to any of us at all.",
            "May twelve thousand three hundred and forty-five",
        ),
    ],
)
def test_long_figures_are_weighed_as_they_are_said(text: str, first: str) -> None:
    found = pieces(text, early=True)
    assert found[0].text.endswith(first) and len(found) > 1
    assert not found[0].ends_sentence


LONG = (
    "The old city of New York and the King of Spain have known the United States of America "
    "for 250 years and 3 months since the Treaty of Paris was signed by Benjamin Franklin and "
    "John Adams in the Hotel de York where a small plaque still tells visitors of that day."
)


@pytest.mark.parametrize("shift", range(0, 96, 6))
def test_names_and_numbers_are_never_cut_in_two(shift: int) -> None:
    text = "quiet " * (shift // 6) + LONG
    spoken = [piece.text for piece in pieces(text, early=True)]
    assert len(spoken) > 2
    for cut in itertools.pairwise(spoken):
        last, first = cut[0].split()[-1], cut[1].split()[0]
        assert last.lower() not in {"the", "of", "and", "a", "by", "in", "for"}
        assert not (last[0].isupper() and first[0].isupper())
        assert first not in {"fifty", "years", "months"}


def test_the_first_pieces_of_an_early_start_grow() -> None:
    found = [spoken_length(piece.text) for piece in pieces(LONG * 3, early=True)]
    assert found[0] <= FirstChunkPolicy.max_length
    assert found[1] <= 3 * found[0] * 2  # numbers may be twice as long when they are spoken
    assert found[0] < found[1] < found[2]


def test_pieces_for_a_slow_and_crowded_engine_begin_shorter_and_grow_less() -> None:
    policy = FirstChunkPolicy(max_length=22, ramp_up=lambda: 1.2)
    read_out = read_chunks(LONG * 3, languages=LANGUAGES, language="en", first_chunk_policy=policy)
    found = [spoken_length(piece.text) for piece in read_out]
    assert found[0] == len("The old city of New York")  # no better place within 22 letters
    for piece, following in itertools.pairwise(found[:6]):
        assert following <= max(22, 1.2 * piece) * 2


def test_a_first_sentence_is_cut_between_words_when_the_engine_needs_it() -> None:
    text = "The train to the coast leaves at nine this morning"
    policy = FirstChunkPolicy(max_length=22)
    first = next(read_chunks(text, languages=LANGUAGES, language="en", first_chunk_policy=policy))
    assert 8 <= len(first.text) <= 22 and text.startswith(first.text)


@pytest.mark.parametrize(("slack", "second"), [(2.0, 41), (4 / 3, 36)])
def test_the_end_of_a_first_sentence_is_made_in_the_time_that_its_engine_has(
    slack: float, second: int
) -> None:
    text = "The train to the coast leaves at nine this morning. Nobody waits for it."
    policy = FirstChunkPolicy(max_length=21, sentence_slack=slack)
    found = [
        piece.text
        for piece in read_chunks(
            text, languages=LANGUAGES, language="en", first_chunk_policy=policy
        )
    ]
    assert found[0] == "The train"
    assert spoken_length(found[1]) <= second
    assert " ".join(found) == text


def test_without_an_early_start_a_sentence_is_whole() -> None:
    assert len(pieces(LONG)) == 1


TEXTS = {
    "prose": PROSE,
    "hindi": "यह एक बहुत लंबा वाक्य है जो बताता है कि हम कल सुबह दिल्ली जाएंगे। आप कैसे हैं? ",
    "arabic": "كيف حالك اليوم يا صديقي؟ أنا بخير والحمد لله، وسوف أذهب غدا إلى السوق. ",
    "chinese": "你好世界，今天天气很好，我们去公园散步吧。然后回家吃饭！",
    "no marks": "the quick brown fox jumps over the lazy dog and then some words follow here ",
    "no spaces": "a",
    "digits": "9",
    "emoji": "\U0001f600",
}


@pytest.mark.parametrize("unit", TEXTS.values(), ids=TEXTS)
def test_the_first_piece_of_a_long_text_comes_as_soon_as_that_of_a_short_one(unit: str) -> None:
    def first_units(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]

        def read_first() -> None:
            for _ in range(5):
                reading = read_chunks(
                    text,
                    languages=LANGUAGES,
                    language="en",
                    words=True,
                    first_chunk_policy=FirstChunkPolicy(),
                )
                next(reading, None)

        return cpu_units(read_first) / 5

    if unit == "\U0001f600":  # nothing in it is ever spoken, so all of it is read
        assert first_units(50_000) < 100
        return
    first_units(50)
    assert first_units(50_000) - first_units(50) < 4


def test_only_what_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = 0

    def counting(text: str) -> str:
        nonlocal cleaned
        cleaned += len(text)
        return clean(text)

    monkeypatch.setattr(segmentation, "clean", counting)
    reading: Iterator[TextChunk] = read_chunks(PROSE * 300, languages=LANGUAGES, language="en")
    next(reading)
    assert cleaned <= segmentation.FIRST_BLOCK


@pytest.mark.parametrize(
    "unit",
    [
        "9",
        "a ",
        "a. ",
        "\u200d",
        "\U0001f600",
        "(",
        ", ",
        "你",
        "เ",
        "\u0301",
        "。",
        "$1 ",
        "“",
        "A.B",
    ],
)
def test_reading_takes_linear_time(unit: str) -> None:
    text = (unit * 20_000)[:20_000]

    def read() -> None:
        for _ in read_chunks(text, languages=LANGUAGES, language="en", words=True):
            pass

    assert cpu_units(read) < 150  # about 20 are measured; quadratic is thousands


@pytest.mark.parametrize("early", [False, True])
def test_a_piece_knows_how_far_the_text_is_read(early: bool) -> None:
    text = "A boat came in, slowly and late. Nobody waved!\n\nIt was dark; the lamp was out. " * 40
    said = ""
    for piece in pieces(text, early=early):
        said += piece.text
        assert letters(text[: piece.text_end]) == letters(said)


@given(st.text(alphabet=st.sampled_from("ab .\n\u0301\U0001f600ﬃ你é"), max_size=300))
@settings(max_examples=60)
def test_no_piece_ends_beyond_the_text_or_before_another(text: str) -> None:
    ends = [piece.text_end for piece in pieces(text)]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)
