"""The inline markup of other services' clients is obeyed or dropped, never spoken."""

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from pipelines.agents.clauses import ClauseSplitter, Urgency
from pipelines.tts.cues import dropped_cues, has_cues, plain_tokens, uncut
from pipelines.tts.reading import SpeechRequest
from tests.cpu_time import check_cpu_units
from tests.pipelines.stt.voiced import INFO
from tests.pipelines.tts.test_passages import pipeline, texts
from tests.pipelines.tts.test_stream import spoken

VENDORS = [  # vendor, an element of its documentation, and the words that it leaves
    ("ElevenLabs", "[laughs]", ""), ("ElevenLabs", "[strong French accent]", ""),
    ("ElevenLabs", "[short pause]", ""), ("ElevenLabs", '<break time="1.5s" />', ""),
    ("ElevenLabs", '<phoneme alphabet="cmu-arpabet" ph="M AE1 D IH0">Madi</phoneme>', "Madi"),
    ("ElevenLabs", '<phoneme alphabet="ipa" ph="ˈædi">Madi</phoneme>', "Madi"),
    ("ElevenLabs", '<phoneme alphabet="x-none" ph="z">Madi</phoneme>', "Madi"),
    ("Cartesia", '<speed ratio="1.05"/>', ""), ("Cartesia", '<volume ratio="0.5"/>', ""),
    ("Cartesia", '<emotion value="angry"/>', ""), ("Cartesia", "<spell>A. B. C</spell>", "A B C"),
    ("Cartesia", "[laughter]", ""), ("Cartesia", "<<k|ɑ|ɹ|ˈ|t>>", "kɑɹt"),
    ("Inworld", "[happy]", ""), ("Inworld", "[clear_throat]", ""),
    ("Inworld", '<BREAK time="2s" />', ""), ("Inworld", "[whispering]", ""),
    ("Rime", "<750>", ""), ("Rime", "{k1Ast0xm}", "kʌstəm"), ("Rime", "spell(XY)", "XY"),
    ("Rime", "<laugh>", ""),
    ("Deepgram", '\\{"word": "Mr. Doe", "pronounce": "doʊ"\\}', "Mr Doe"),
    ("Deepgram", "\\{pause:1s\\}", ""),
    ("Kokoro", "[Kokoro](/kˈOkəɹO/)", "Kokoro"), ("Kokoro", "[a b](/ˈA bˈi/)", "a b"),
]  # fmt: skip
FREE = [
    ("Inworld", "[speak warmly, as if greeting an old friend. Slowly]", ""),
    ("Inworld", "/kriːt/", "krit"), ("Inworld", "*really*", "really"),
    ("ElevenLabs", "/ˈnoʊvə/", "noʊvə"), ("ElevenLabs", "[exhales sharply 2 times]", ""),
]  # fmt: skip
DROPPED = [
    "[laughs]", "[whispers]", "[sarcastic]", "[starts laughing]", "[strong French accent]",
    "[laughter]", "[happy]", "[clear_throat]", "[breathe]", "[emotion=happy]", "[LAUGHS]",
    '<emotion value="sad"/>', '<emotion value="angry" />', '<speed ratio="fast"/>',
]  # fmt: skip


@pytest.mark.parametrize("cue", DROPPED)
async def test_directions_that_no_voice_follows_are_dropped(cue: str) -> None:
    speech, one, _ = pipeline()
    await spoken(speech, SpeechRequest(f"{cue} Hello there. Come {cue} in."))
    assert re.findall(r"\w+", " ".join(texts(one))) == ["Hello", "there", "Come", "in"]
    assert dropped_cues(f"{cue} Hello", free=False) == [cue]


def test_any_words_in_brackets_are_directions_of_some_dialects() -> None:
    text = "[as if in a hurry] Hello [Your Name], see [1] and [docs](https://a.b)."
    assert not has_cues("See [docs](/über/), [b](/日本語/) and [c](/año/nuevo/).", free=False)
    assert dropped_cues(text, free=True) == ["[as if in a hurry]"]
    assert not has_cues(text, free=False)


@pytest.mark.parametrize(
    "text",
    [
        "[the laughs](http://a)",
        "[home](/)",
        "[docs](/docs/é/)",
        "[a](/b/)",
        '"[laughs]"',
        "`[laughs]`",
        "a[laughs]",
        "[1]",
        "a < b > c",
    ],
)
def test_links_quotes_and_code_are_no_directions(text: str) -> None:
    assert not has_cues(text, free=False)


async def test_speed_volume_and_spelling_of_cartesia_are_obeyed() -> None:
    speech, one, _ = pipeline()
    text = 'Slow. <speed ratio="1.5"/> Fast. <volume ratio="0.5"/> Soft. <spell>AB1</spell>'
    plan = await speech.plan(SpeechRequest(text))
    manners = [(passage.speed, round(passage.volume_db, 1)) for passage in plan.passages]
    assert manners == [(1.0, 0.0), (1.5, 0.0), (1.5, -6.0)]
    await spoken(speech, SpeechRequest(text))
    assert texts(one)[-1].endswith("A, B, one") or "A, B" in " ".join(texts(one))


@pytest.mark.parametrize("cue", ["<750>", r"\{pause:750ms\}", '<break time="750ms"/>'])
def test_pauses_of_all_dialects_are_pauses(cue: str) -> None:
    _, pause, _ = plain_tokens(f"Wait {cue} here", free=False)
    assert (pause.name, pause.attributes) == ("break", {"time": "750ms"})


async def test_a_pronunciation_of_deepgram_is_spoken() -> None:
    speech, one, _ = pipeline(replace(INFO, phonemes=True))
    text = r'Take \{"word": "dupilumab", "pronounce": "duːˈpɪljuːmæb"\} now.'
    await spoken(speech, SpeechRequest(text))
    assert one.calls[0].text == "Take dupilumab now."
    assert one.calls[0].phonemes == ((5, 14, "duːˈpɪljuːmæb"),)


async def test_a_pronunciation_of_kokoro_is_spoken() -> None:
    speech, one, _ = pipeline(replace(INFO, phonemes=True))
    await spoken(speech, SpeechRequest("Great choice, [Ioan](/jˈOʧən/)!"))
    assert one.calls[0].text == "Great choice, Ioan!"
    assert one.calls[0].phonemes == ((14, 18, "jˈoʊtʃən"),)


@pytest.mark.parametrize(
    "unit", ["[a](/", "[a](/é", "[", "[a", "[very ", "<", "<speed ", "\\{pause:1", '{"word": "']
)
def test_cues_are_found_in_linear_time(unit: str) -> None:
    text = (unit * 50_000)[:50_000]
    check_cpu_units(lambda: has_cues(text, free=True), below=100)


def words_of(pieces: Iterable[str], *, free: bool) -> str:
    read = "".join(
        token.text for piece in pieces for token in plain_tokens(piece, free=free) if not token.name
    )
    return " ".join(re.findall(r"\w+", read))


@pytest.mark.parametrize(("vendor", "cue", "words"), VENDORS + FREE)
def test_no_piece_of_a_growing_text_has_half_a_cue(vendor: str, cue: str, words: str) -> None:
    text = f"Come {cue} in."
    if cue.startswith("spell("):
        pytest.skip("its name is a word, which no piece ends in")
    free = (vendor, cue, words) in FREE
    expected = f"Come {words} in".replace("  ", " ")
    assert words_of([text], free=free) == expected
    for end in range(len(text) + 1):  # of what has come when it is flushed
        if "](" in cue and text[:end].endswith("]"):
            continue  # a whole bracket, whose words are not held back
        for position in range(end + 1):
            cut = uncut(text[:end], position)
            assert words_of([text[:cut], text[cut:]], free=free) == expected, text[:end]


@pytest.mark.parametrize(("vendor", "cue", "words"), VENDORS)
def test_clauses_of_an_agent_have_whole_cues(vendor: str, cue: str, words: str) -> None:
    splitter = ClauseSplitter("en")
    pieces = []
    for letter in f"Hello there my friend, come {cue} in with me to the house. Sit down.":
        splitter.push(letter)
        pieces.append(splitter.take(Urgency.SOON))
    pieces.append(splitter.finish())
    expected = f"Hello there my friend come {words} in with me to the house Sit down"
    assert words_of(pieces, free=False) == expected.replace("  ", " ")


@pytest.mark.parametrize("half", ["[lau", "<spe", '<speed ratio="1.', '\\{"word": "Mr', "<<k|ɑ"])
def test_the_beginning_of_a_cue_at_the_end_is_dropped_and_named(half: str) -> None:
    assert words_of([f"Hello {half}"], free=False) == "Hello"
    assert dropped_cues(f"Hello {half}", free=False) == [half]


@pytest.mark.parametrize("end", ["[the", "a <", "3 <5", "{name", "and/", "C:\\"])
def test_other_signs_at_the_end_are_kept(end: str) -> None:
    assert not has_cues(f"Hello {end}", free=False)
