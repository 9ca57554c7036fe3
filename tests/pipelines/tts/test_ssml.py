"""SSML: what is read of a document, where its words are, and what is refused."""

import time
from dataclasses import replace
from functools import partial

import pytest

from pipelines.errors import InvalidRequest
from pipelines.text.chunking import TextChunk
from pipelines.text.lexicon import Lexicon
from pipelines.text.markup import tokens_of
from pipelines.text.say_as import say_as
from pipelines.tts.reading import (
    PassageReader,
    SpeechRequest,
    SpokenPassage,
    chunks_of,
    is_ssml,
    parse,
)
from pipelines.tts.voices import AvailableVoice
from tests.cpu_time import cpu_units
from tests.pipelines.stt.voiced import INFO, VOICE


def passages_of(
    text: str, language: str = "en", lexicon: Lexicon | None = None, *, phonemes: bool = True
) -> tuple[SpokenPassage, ...]:
    model = replace(INFO, phonemes=phonemes)
    voice = AvailableVoice(replace(VOICE, language=language), model, "one")
    voices = {"Ann": replace(voice, info=replace(VOICE, name="Ann"))}

    def default(code: str) -> AvailableVoice:
        return replace(voice, info=replace(VOICE, name=code, language=code))

    request = SpeechRequest(text)
    return PassageReader(request, voice, voices, default, lexicon).read(parse(request)[0])


def read(
    text: str, language: str = "en", lexicon: Lexicon | None = None, *, phonemes: bool = True
) -> list[TextChunk]:
    passages = passages_of(text, language, lexicon, phonemes=phonemes)
    return list(chunks_of(passages, words=True, policy=None))


def spoken(document: str, language: str = "en") -> list[str]:
    return [chunk.text for chunk in read(document, language)]


def test_a_document_is_told_by_its_beginning() -> None:
    assert is_ssml("\n <speak>a</speak>")
    assert is_ssml('<?xml version="1.0" encoding="utf-16"?>\n<speak version="1.1">a</speak>')
    assert is_ssml("<!-- a --> <!-- b --><speak>a</speak>")
    assert is_ssml("<!DOCTYPE speak [<!ENTITY a 'b'>]><speak>a</speak>")  # which is refused
    assert not is_ssml("<!----" * 5000 + "<!---->" * 5000)
    assert not is_ssml("<speaker> said hello")
    assert not is_ssml("He wrote <speak>.")


def test_a_declaration_does_not_move_words() -> None:
    text = '<?xml version="1.0" encoding="utf-16"?>\n<speak>déjà vu 🙂 &amp; more</speak>'
    words = read(text, "fr")[0].words
    assert [(word.word, text[word.start : word.end]) for word in words] == [
        ("déjà", "déjà"),
        ("vu", "vu"),
        ("&", "&amp;"),
        ("more", "more"),
    ]


def test_words_are_the_callers_own_and_have_their_places_in_the_document() -> None:
    text = (
        '<speak>Ask the <sub alias="World Wide Web Consortium">W3C</sub>, or\n  <phoneme '
        'ph="təˈmɑːtəʊ">tomato</phoneme> fans at AT&amp;T<![CDATA[ Q&A]]></speak>'
    )
    (chunk,) = read(text)
    assert chunk.text == "Ask the World Wide Web Consortium, or tomato fans at AT and T Q and A"
    assert chunk.phonemes == ((38, 44, "təˈmɑːtəʊ"),)
    assert [(one.word, chunk.text[one.spoken_start : one.spoken_end]) for one in chunk.words] == [
        ("Ask", "Ask"),
        ("the", "the"),
        ("W3C,", "World Wide Web Consortium,"),
        ("or", "or"),
        ("tomato", "tomato"),
        ("fans", "fans"),
        ("at", "at"),
        ("AT&T", "AT and T"),
        ("Q&A", "Q and A"),
    ]
    places = [text[one.start : one.end] for one in chunk.words]
    assert places[2:5] == ["W3C</sub>,", "or", "tomato"]
    assert places[7] == "AT&amp;T"


def test_words_that_an_engine_takes_no_phonemes_of_are_read_as_written() -> None:
    (chunk,) = read('<speak>a <phoneme ph="x">St. Ives 5</phoneme></speak>', phonemes=False)
    assert chunk.text == "a Saint Ives five"
    assert not chunk.phonemes


def test_marks_have_the_place_of_the_word_after_them() -> None:
    text = '<speak>One <mark name="a"/>two.<mark name="b"/><break/><mark name="c"/></speak>'
    chunks = read(text)
    marks = [word for chunk in chunks for word in chunk.words if word.mark]
    assert [(one.mark, one.spoken_start) for one in marks] == [("a", 4), ("b", 8), ("c", 8)]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ('<prosody rate="slow" pitch="+12st" volume="-6dB">b</prosody>', (0.75, 2.0, -6.0)),
        ('<prosody rate="50%"><prosody rate="+20%" pitch="x-low">b</prosody></prosody>',
         (0.6, 0.75, 0.0)),
        ('<prosody rate="1.5" volume="silent">b</prosody>', (1.5, 1.0, -60.0)),
        ('<prosody rate="default" pitch="-10%" volume="loud">b</prosody>', (1.0, 0.9, 4.0)),
        ('<prosody rate="9000%" pitch="900%" volume="+90dB">b</prosody>', (4.0, 2.0, 12.0)),
        ('<emphasis level="reduced">b</emphasis>', (1.1, 1.0, -3.0)),
        ('<emphasis>b</emphasis>', (0.92, 1.0, 1.5)),
    ],
)  # fmt: skip
def test_prosody_is_that_of_its_segment(markup: str, expected: tuple[float, float, float]) -> None:
    before, inside, after = passages_of(f"<speak>a {markup} c</speak>")
    manner = (inside.speed, inside.pitch, inside.volume_db)
    assert manner == pytest.approx(expected)
    assert (before.speed, after.speed, after.volume_db) == (1.0, 1.0, 0.0)


def test_pauses_add_up_and_are_bounded() -> None:
    text = (
        '<speak><break time="1s"/>a<break time="250ms"/><break strength="weak"/>b'
        '<p>c</p><s>d</s>e.<prosody rate="fast">f</prosody><break time="99s"/></speak>'
    )
    assert [(one.text, one.gap_s, one.pause_s) for one in passages_of(text)] == [
        ("a", 0.0, 1.0),
        ("b", 0.0, 0.5),
        ("c", 0.45, None),
        ("d", 0.45, None),
        ("e.", 0.18, None),
        ("f", 0.18, None),
        ("", 0.0, 10.0),
    ]


def test_voices_and_languages_are_those_of_their_elements() -> None:
    text = (
        '<speak xml:lang="en-GB">a<voice name="Ann">b<lang xml:lang="fr-FR">c</lang></voice>'
        '<voice xml:lang="de">d</voice><p xml:lang="es">e</p></speak>'
    )
    assert [(one.text, one.voice.info.name, one.language) for one in passages_of(text)] == [
        ("a", "Vera", None),
        ("b", "Ann", None),
        ("c", "fr", "fr"),
        ("d", "de", "de"),
        ("e", "es", "es"),
    ]


@pytest.mark.parametrize(
    ("written", "kind", "language", "expected"),
    [
        ("BBC 2", "characters", "en", "\u202fB, B, C, 2"),
        ("a.b", "verbatim", "de", "\u202fA, Punkt, B"),
        ("007", "digits", "en", "zero zero seven"),
        ("+44 20", "telephone", "en", "plus four four, two zero"),
        ("1984", "cardinal", "en", "one thousand nine hundred and eighty-four"),
        ("3", "ordinal", "en", "third"),
        ("3", "ordinal", "de", "dritte"),
        ("05/06/24", "date dmy", "en", "June fifth twenty twenty-four"),
        ("2024-06-05", "date ymd", "en", "June fifth twenty twenty-four"),
        ("99/99/24", "date dmy", "en", "99/99/24"),
        ("3/4/98", "date mdy", "en", "March fourth nineteen ninety-eight"),  # as in any text
        ("3/4", "date dm", "fr", "trois avril"),
        ("3/2024", "date my", "es", "marzo de 2024"),
        ("1984", "date y", "en", "nineteen eighty-four"),
        ("2024-06-05", "date ymd", "zh", "二零二四年六月五日"),
        ("13/2024", "date my", "en", "13/2024"),
        ("9" * 5000, "date y", "en", "9" * 5000),
        ("XIV", "ordinal", "en", "fourteenth"),
        ("XIV", "cardinal", "fr", "quatorze"),
        ("$42.50", "currency", "en", "$42.50"),
        ("", "cardinal", "en", ""),
        ("x" * 50, "ordinal", "en", "x" * 50),
        ("9" * 500, "ordinal", "en", "9" * 500),
    ],
)
def test_say_as(written: str, kind: str, language: str, expected: str) -> None:
    kind, _, form = kind.partition(" ")
    assert say_as(written, kind, form, language) == expected


def test_what_is_spelled_joins_no_word_before_it() -> None:
    text = '<speak>Chapter <say-as interpret-as="characters">IV</say-as> ends.</speak>'
    assert spoken(text) == ["Chapter I, V ends."]
    assert spoken("<speak>Chapter IV ends.</speak>") == ["Chapter four ends."]


def test_usual_notations_are_left_to_normalisation() -> None:
    kinds = {"time": "8:30", "currency": "$5", "unit": "10 kg", "date": "2024-06-05"}
    texts = [f'<say-as interpret-as="{kind}">{text}</say-as>' for kind, text in kinds.items()]
    assert spoken(f"<speak>{', '.join(texts)}</speak>") == [
        "eight thirty, five dollars, ten kilograms, June fifth twenty twenty-four"
    ]


@pytest.mark.parametrize(
    ("document", "place", "reason"),
    [
        ("<speak>a", (1, 9), "no element found"),
        ("<speak>\n  <foo/></speak>", (2, 3), "<foo> is not supported"),
        ("<speak>é <foo/></speak>", (1, 10), "<foo> is not supported"),
        ('<speak><lang>a</lang></speak>', (1, 8), "needs xml:lang"),
        ('<speak><sub>a</sub></speak>', (1, 8), "needs alias"),
        ('<speak><mark/></speak>', (1, 8), "needs name"),
        ('<speak><phoneme alphabet="q" ph="a">a</phoneme></speak>', (1, 8), "ipa, x-sampa"),
        ('<speak><phoneme ph="!">a</phoneme></speak>', (1, 8), "no sound"),
        ('<speak><phoneme ph="w33r!">a</phoneme></speak>', (1, 8), "unknown in ipa: 3 !"),
        ('<speak><say-as interpret-as="expletive">a</say-as></speak>', (1, 8), "one of"),
        ('<speak><prosody rate="quick">a</prosody></speak>', (1, 8), "rate: must be one of"),
        ('<speak><prosody pitch="200Hz">a</prosody></speak>', (1, 8), "pitch: must be one of"),
        ('<speak><prosody volume="50">a</prosody></speak>', (1, 8), "volume: must be one of"),
        ('<speak><emphasis level="wild">a</emphasis></speak>', (1, 8), "level: must be one of"),
        ('<speak><break time="5"/></speak>', (1, 8), "a number with 's'"),
        ('<speak><break strength="wild"/></speak>', (1, 8), "strength: must be one of"),
        ("<speak><p><speak>a</speak></p></speak>", (1, 11), "another <speak>"),
        ('<speak><sub alias="b"><s>a</s></sub></speak>', (1, 8), "only text"),
        ("<speak>" + "<p>" * 100 + "</p>" * 100 + "</speak>", (1, 197), "at most 64 deep"),
        ("<speak>&lol;</speak>", (1, 8), "undefined entity"),
        ("<speak>a</speak><speak>b</speak>", (1, 17), "junk after document element"),
        ("<speak>\0</speak>", (1, 8), "not well-formed"),
        ("<speak a='1' a='2'>b</speak>", (1, 14), "duplicate attribute"),
    ],
)  # fmt: skip
def test_wrong_markup_is_refused_with_its_place(
    document: str, place: tuple[int, int], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        passages_of(document)
    line, column = place
    assert str(refused.value).startswith(f"text: line {line}, column {column}: ")


BILLION_LAUGHS = "<!DOCTYPE speak [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY a{n} '&a{n - 1 or ''};&a{n - 1 or ''};'>" for n in range(1, 40)
)


@pytest.mark.parametrize(
    "prologue",
    [
        BILLION_LAUGHS + "]>",
        "<!DOCTYPE speak SYSTEM 'file:///etc/passwd'>",
        "<!DOCTYPE speak [<!ENTITY x SYSTEM 'http://127.0.0.1:1/'>]>",
        "<!DOCTYPE speak [<!ENTITY % x SYSTEM 'file:///dev/zero'> %x;]>",
    ],
)
def test_entities_of_ones_own_and_outside_are_refused(prologue: str) -> None:
    begins = time.monotonic()
    with pytest.raises(InvalidRequest, match="document type"):
        list(tokens_of(prologue + "<speak>&a39;&x;</speak>", "text"))
    assert time.monotonic() - begins < 1.0


@pytest.mark.slow
def test_a_document_of_empty_elements_is_read_in_linear_time() -> None:
    for one in ("<break/>", "a<s/>", "<mark name='a'/>", "&amp;", "<p>a</p>\n", "<![CDATA[a]]>"):
        text = f"<speak>{one * (50_000 // len(one))}</speak>"
        assert cpu_units(partial(read, text)) < 100, one  # about 20 are measured


def test_signs_of_the_caller_are_none_of_ours() -> None:
    text = '<speak>a\U000f0000b\U000f0000 <phoneme ph="x">\U000f0000</phoneme> c</speak>'
    (chunk,) = read(text)
    assert chunk.text == "a b x c"
    assert chunk.phonemes == ((4, 5, "x"),)


@pytest.mark.parametrize(
    ("tag", "pause_s"),
    [
        ('<break time="1.5s"/>', 1.5),
        ("<break  time='1500ms' />", 1.5),
        ("<break time='99999ms'/>", 10.0),
        ("<10000>", 10.0),
        ("[pause 2s]", 2.0),
        ("[pause:1.5s]", 1.5),
        ("[Pause:700ms],", 0.7),
        ("[pause 99s]", 10.0),
        ("[pause]", 0.5),
        ("[short pause]", 0.25),
        ("[medium pause]", 0.5),
        ("[Long Pause].", 1.2),
    ],
)
def test_a_break_in_a_plain_text_is_a_pause(tag: str, pause_s: float) -> None:
    text = f"One. {tag} Two 3."
    first, second = passages_of(text)
    assert (first.pause_s, second.pause_s) == (None, pause_s)
    words = [word for chunk in read(text) for word in chunk.words]
    assert [text[one.start : one.end] for one in words] == ["One.", "Two", "3."]


@pytest.mark.parametrize(
    "text",
    [
        *("a <break> b", "a <break/> b", '<break time="x"/>', '<break time="1"/>', "<break"),
        *("[pause](https://a.b)", "See [pause][1].", "[pause]: https://a.b", "![pause](a.png)"),
        *('Say "[pause]" now.', "Say “[pause]” now.", "list[pause] = x", "[[pause]]", "[pauses]"),
        *("`a [pause] b`", "```\nsay [pause]\n``` b", "[pause 2]", "[pause 2 min]", "[a pause]"),
    ],
)
def test_another_break_in_a_plain_text_is_text(text: str) -> None:
    assert [one.text for one in passages_of(text)] == [text]


def test_a_pause_after_code_is_one() -> None:
    first, second = passages_of("Write `[pause]` for it. [long pause] Then go on.")
    assert (first.text, second.pause_s) == ("Write `[pause]` for it. ", 1.2)
