"""The inline markup of other services' clients is obeyed or dropped, never spoken."""

import re
from dataclasses import replace

import pytest

from pipelines.tts.cues import dropped_cues, has_cues, plain_tokens, uncut
from pipelines.tts.reading import SpeechRequest
from tests.cpu_time import cpu_units
from tests.pipelines.stt.voiced import INFO
from tests.pipelines.tts.test_passages import pipeline, texts
from tests.pipelines.tts.test_stream import spoken

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
    assert dropped_cues(text, free=True) == ["[as if in a hurry]"]
    assert not has_cues(text, free=False)


@pytest.mark.parametrize(
    "text", ["[the laughs](http://a)", '"[laughs]"', "`[laughs]`", "a[laughs]", "[1]", "a < b > c"]
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


@pytest.mark.parametrize("unit", ["[", "[a", "[very ", "<", "<speed ", "\\{pause:1", '{"word": "'])
def test_cues_are_found_in_linear_time(unit: str) -> None:
    text = (unit * 50_000)[:50_000]
    assert cpu_units(lambda: has_cues(text, free=True)) < 100
