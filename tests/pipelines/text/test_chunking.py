"""Chunking: a text is cut lazily into what each call of an engine speaks."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.text import segmentation
from pipelines.text.chunking import (
    MAX_CHUNK_LENGTH,
    Chunker,
    FirstChunkPolicy,
    TextChunk,
    read_chunks,
)
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import BLOCK, clean
from pipelines.text.spoken_length import spoken_length
from tests.cpu_time import check_cpu_units, cpu_units
from tests.pipelines.text.sentence_corpus import HARD_CASES, split_sentences

LANGUAGES = frozenset("en hi ar fr de es it nl pl pt bn ja zh".split())
PROSE = (
    "The meeting with Dr. Smith, which had been moved twice, takes place at 3:30 pm. "
    "Nobody knew why! Please bring $3.50, e.g. in coins, and read www.example.com before. "
)
FRENCH = "Bonjour tout le monde, je suis très content de vous voir ici aujourd'hui."


def chunks(
    text: str, language: str = "en", *, words: bool = False, early: bool = False
) -> list[TextChunk]:
    policy = FirstChunkPolicy() if early else None
    return list(
        read_chunks(
            text, languages=LANGUAGES, language=language, words=words, chunker=Chunker(policy)
        )
    )


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize(("language", "marked"), HARD_CASES)
def test_each_sentence_becomes_one_chunk(language: str, marked: str) -> None:
    sentences = marked.split("|")
    text = ("" if language in ("zh", "ja") else " ").join(sentences)
    found = list(read_chunks(text, languages=frozenset({language}), language=language))
    assert [chunk.text for chunk in found] == [normalise(one, language) for one in sentences]
    assert all(chunk.ends_sentence for chunk in found)
    assert [chunk.ends_paragraph for chunk in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("text", [PROSE * 60, "你好，今天天气很好。我们去公园吧！" * 300])
def test_reading_in_blocks_does_not_change_the_chunks(text: str) -> None:
    language = "en" if text.isascii() else "zh"
    assert len(text) > 2 * BLOCK
    assert [chunk.text for chunk in chunks(text, language)] == [
        normalise(sentence, language) for sentence in split_sentences(text, language)
    ]


@given(
    st.text(st.sampled_from('abcéж你 ठเก\u0301.,;!?\u2019"()-\n\u200d'), max_size=900),
    st.booleans(),
)
def test_chunks_hold_every_letter_once_in_order_within_the_limit(text: str, early: bool) -> None:
    found = chunks(text, early=early)
    assert letters("".join(chunk.text for chunk in found)) == letters(clean(text))
    assert all(
        0 < len(chunk.text) and spoken_length(chunk.text) <= MAX_CHUNK_LENGTH for chunk in found
    )


@given(st.text(max_size=300), st.sampled_from([*sorted(LANGUAGES), "xx"]))
def test_any_text_is_chunked_without_errors(text: str, language: str) -> None:
    for chunk in chunks(text, language, early=True):
        assert chunk.text == chunk.text.strip() != ""


@pytest.mark.parametrize("text", ["", " \n ", "...", "\U0001f600\n\u200b", "$ %", "\n" * 9000])
def test_unspeakable_text_gives_no_chunks(text: str) -> None:
    assert chunks(text) == []


def test_a_newline_always_ends_a_chunk_and_its_paragraph() -> None:
    found = chunks("one\r\ntwo\n\n ... \nthree. four")
    assert [chunk.text for chunk in found] == ["one", "two", "three.", "four"]
    assert [chunk.ends_paragraph for chunk in found] == [True, True, False, True]


def test_only_the_last_chunk_of_a_very_long_paragraph_ends_it() -> None:
    found = chunks("word " * 4000)
    assert [chunk.ends_paragraph for chunk in found[-2:]] == [False, True]
    assert not any(chunk.ends_sentence for chunk in found[:-1])
    assert letters("".join(chunk.text for chunk in found)) == "word" * 4000


def test_each_paragraph_is_chunked_in_its_detected_language() -> None:
    text = f"Hello there, this is the first line.\n{FRENCH}\nOK.\nनमस्ते दुनिया\n12\nParis"
    assert [chunk.language for chunk in chunks(text, "en")] == ["en", "fr", "en", "hi", "en", "en"]


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
    assert {chunk.language for chunk in chunks(text, "en")} == {"en"}


def test_a_paragraph_in_an_unavailable_language_keeps_the_language_of_the_voice() -> None:
    found = list(read_chunks(FRENCH + "\nनमस्ते", languages=frozenset({"en"}), language="en"))
    assert {chunk.language for chunk in found} == {"en"}


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
            ["When the rain finally stopped,", "everybody went home and slept for a long time."],
        ),
        ("en", "The quick brown fox likes the lazy old dog.", None),  # no clause: whole
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
def test_an_early_start_cuts_the_first_sentence_at_a_clause_or_phrase(
    language: str, text: str, expected: list[str] | None
) -> None:
    found = chunks(text, language, early=True)
    assert [chunk.text for chunk in found] == (expected or [text])
    assert [chunk.ends_sentence for chunk in found] == [False] * (len(found) - 1) + [True]


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
def test_long_figures_count_by_their_spoken_length_in_a_first_chunk(text: str, first: str) -> None:
    found = chunks(text, early=True)
    assert found[0].text.endswith(first) and len(found) > 1
    assert not found[0].ends_sentence


LONG = (
    "The old city of New York and the King of Spain have known the United States of America "
    "for 250 years and 3 months since the Treaty of Paris was signed by Benjamin Franklin and "
    "John Adams in the Hotel de York where a small plaque still tells visitors of that day."
)


@pytest.mark.parametrize("shift", range(0, 96, 6))
def test_names_and_numbers_are_never_split_between_chunks(shift: int) -> None:
    text = "quiet " * (shift // 6) + LONG
    spoken = [chunk.text for chunk in chunks(text, early=True)]
    assert len(spoken) > 2
    for cut in itertools.pairwise(spoken):
        last, first = cut[0].split()[-1], cut[1].split()[0]
        assert last.lower() not in {"the", "of", "and", "a", "by", "in", "for"}
        assert not (last[0].isupper() and first[0].isupper())
        assert first not in {"fifty", "years", "months"}


def test_the_first_chunks_of_an_early_start_grow_in_length() -> None:
    found = [spoken_length(chunk.text) for chunk in chunks(LONG * 3, early=True)]
    assert found[0] <= FirstChunkPolicy.max_length
    assert found[1] <= 3 * found[0] * 2  # numbers may be twice as long when they are spoken
    assert found[0] < found[1] < found[2]


def test_slow_engines_get_shorter_chunks_that_grow_less() -> None:
    policy = FirstChunkPolicy(max_length=22, longest=lambda last: 1.2 * last)
    read_out = read_chunks(LONG * 3, languages=LANGUAGES, language="en", chunker=Chunker(policy))
    found = [spoken_length(chunk.text) for chunk in read_out]
    assert found[0] == len("The old city of New York")  # no better place within 22 letters
    for chunk, following in itertools.pairwise(found[:6]):
        assert following <= max(22, 1.2 * chunk) * 2


def test_a_chunk_is_cut_by_what_holds_when_it_is_asked_for() -> None:
    most = 24
    policy = FirstChunkPolicy(max_length=24, longest=lambda _: most, sentence_slack=1.0)
    text = "The old mill by the river was sold, " * 6 + "and nobody minded. The end."
    read_out = read_chunks(text, languages=LANGUAGES, language="en", chunker=Chunker(policy))
    short = [next(read_out) for _ in range(3)]
    most = 100  # the other streams have ended
    following = next(read_out)
    assert all(spoken_length(chunk.text) <= 24 for chunk in short)
    assert spoken_length(following.text) > 48
    last = [*read_out][-2:]
    assert [(chunk.ends_sentence, chunk.ends_paragraph) for chunk in last] == [
        (True, False),
        (True, True),
    ]


def test_a_first_sentence_without_clauses_is_cut_between_words() -> None:
    text = "The train to the coast leaves at nine this morning"
    policy = FirstChunkPolicy(max_length=22)
    first = next(read_chunks(text, languages=LANGUAGES, language="en", chunker=Chunker(policy)))
    assert 8 <= len(first.text) <= 22 and text.startswith(first.text)


@pytest.mark.parametrize(("slack", "second"), [(2.0, 41), (4 / 3, 36)])
def test_the_sentence_slack_limits_the_second_chunk_of_the_first_sentence(
    slack: float, second: int
) -> None:
    text = "The train to the coast leaves at nine this morning. Nobody waits for it."
    policy = FirstChunkPolicy(max_length=21, sentence_slack=slack)
    found = [
        chunk.text
        for chunk in read_chunks(text, languages=LANGUAGES, language="en", chunker=Chunker(policy))
    ]
    assert found[0] == "The train"
    assert spoken_length(found[1]) <= second
    assert " ".join(found) == text


def test_a_long_sentence_without_an_early_start_is_one_chunk() -> None:
    assert len(chunks(LONG)) == 1


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


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(unit, id=name, marks=() if name == "prose" else pytest.mark.slow)
        for name, unit in TEXTS.items()
    ],
)
@pytest.mark.slow
def test_the_cpu_time_of_a_first_chunk_ignores_text_length(unit: str) -> None:
    def first_units(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]

        def read_first() -> None:
            for _ in range(5):
                reading = read_chunks(
                    text,
                    languages=LANGUAGES,
                    language="en",
                    words=True,
                    chunker=Chunker(FirstChunkPolicy()),
                )
                next(reading, None)

        return cpu_units(read_first) / 5

    if unit == "\U0001f600":  # nothing in it is ever spoken, so all of it is read
        assert first_units(50_000) < 100
        return
    first_units(50)
    assert first_units(50_000) - first_units(50) < 4


def test_the_first_chunk_reads_only_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
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
        "a. ",
        "你",
        "\u0301",
        "$1 ",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("a ", "\u200d", "\U0001f600", "(", ", ", "เ", "。", "“", "A.B")
        ),
    ],
)
def test_chunking_takes_linear_time(unit: str) -> None:
    text = (unit * 20_000)[:20_000]

    def read() -> None:
        for _ in read_chunks(text, languages=LANGUAGES, language="en", words=True):
            pass

    check_cpu_units(read, below=150)  # about 20 are measured; quadratic is thousands


@pytest.mark.parametrize("early", [False, True])
def test_text_end_of_a_chunk_covers_exactly_the_text_read_so_far(early: bool) -> None:
    text = "A boat came in, slowly and late. Nobody waved!\n\nIt was dark; the lamp was out. " * 40
    said = ""
    for chunk in chunks(text, early=early):
        said += chunk.text
        assert letters(text[: chunk.text_end]) == letters(said)


@given(st.text(alphabet=st.sampled_from("ab .\n\u0301\U0001f600ﬃ你é"), max_size=300))
@settings(max_examples=60)
def test_text_ends_of_chunks_are_in_order_and_within_the_text(text: str) -> None:
    ends = [chunk.text_end for chunk in chunks(text)]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)
