"""Speech of texts that are not plain: voices, pauses, volumes, phonemes and marks in the audio."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.schema.voices import VoiceRef, VoicesConfig
from models.audio import Pcm
from models.base import ModelInfo
from pipelines.errors import InvalidRequest, NothingToSpeak, VoiceNotFound
from pipelines.text.lexicon import Lexicon, Pronunciation
from pipelines.tts.dictionaries import Dictionaries, DictionaryRef
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import ScriptTurn, SpeechRequest
from pipelines.tts.shaping import SpokenChunk, timings_json
from tests.cpu_time import check_cpu_units
from tests.pipelines.audio.reference_loudness import measure_lufs
from tests.pipelines.stt.voiced import INFO, SAMPLE_RATE, VOICE, VoicedSpeaker, speak
from tests.pipelines.tts.test_stream import joined, spoken

ANN = replace(VOICE, key="a", name="Ann", engine="other")
DORA = replace(VOICE, key="d", name="Dora", language="de", engine="other")
OTHER = replace(INFO, id="svc/other", engine="other", languages=("de", "en"), voices=(ANN, DORA))


def pipeline(
    info: ModelInfo = INFO, other: ModelInfo = OTHER
) -> tuple[SpeechPipeline, VoicedSpeaker, VoicedSpeaker]:
    one, two = VoicedSpeaker(info=info), VoicedSpeaker(info=other)
    defaults = {"en": VoiceRef(engine="fake", key="v")}
    return (
        SpeechPipeline(
            {"one": one, "two": two}, VoicesConfig(defaults=defaults), dictionaries=OneDictionary()
        ),
        one,
        two,
    )


def silences(pcm: Pcm, rate: int = SAMPLE_RATE) -> list[float]:
    """The lengths of the exact silences of over 30 ms, in seconds."""
    quiet = np.concatenate([[False], pcm == 0.0, [False]])
    edges = np.flatnonzero(np.diff(quiet.astype(np.int8)))
    lengths = (edges[1::2] - edges[::2]) / rate
    return [round(float(one), 2) for one in lengths if one > 0.03]


def texts(speaker: VoicedSpeaker) -> list[str]:
    return [call.text for call in speaker.calls]


async def heard(text: str, speed: float = 1.0) -> tuple[Pcm, Sequence[SpokenChunk]]:
    speech, *_ = pipeline()
    request = SpeechRequest(text, enhance=False, timings=True, speed=speed)
    chunks = await spoken(speech, request)
    return joined(chunks), chunks


@pytest.mark.parametrize("speed", [1.0, 2.0])
async def test_breaks_are_as_long_as_they_say_at_every_speed(speed: float) -> None:
    text = '<break time="0.7s"/>One two. <break time="1200ms"/> Three four.<break time="0.5s"/>'
    pcm, _ = await heard(text, speed)
    assert silences(pcm) == pytest.approx([0.7, 1.2, 0.5], abs=0.07)


async def test_a_file_has_the_same_pauses_as_the_stream() -> None:
    text = "<speak><p>One two.</p><s>Three</s>four <prosody rate='fast'>five</prosody> six.</speak>"
    streamed, _ = await heard(text)
    speech, *_ = pipeline()
    file = await speak(speech, SpeechRequest(text, enhance=False, timings=True))
    assert len(file.audio.pcm) == len(streamed)
    assert silences(streamed) == pytest.approx([0.45, 0.18], abs=0.06)


async def test_word_times_and_marks_count_from_the_start_of_the_speech() -> None:
    text = '<speak><break time="1s"/>One <mark name="m"/>two.<break time="2s"/>Six.</speak>'
    _, chunks = await heard(text)
    words = [word for chunk in chunks for word in chunk.words]
    shown = timings_json(words)
    assert [one["word"] for one in shown["words"]] == ["One", "two.", "Six."]
    starts = [one["start"] for one in shown["words"]]
    assert starts[0] == pytest.approx(1.0, abs=0.05)
    (mark,) = shown["marks"]
    assert mark == {"mark": "m", "time": starts[1], "text_start": text.index("<mark")}
    assert starts[2] - shown["words"][1]["end"] == pytest.approx(2.0, abs=0.1)
    assert all(text[one["text_start"] : one["text_end"]] == one["word"] for one in shown["words"])


async def test_prosody_changes_length_and_level_of_its_part_only() -> None:
    plain, _ = await heard("<speak>One two three four.<break time='1s'/>Five six.</speak>")
    slow, _ = await heard(
        "<speak><prosody rate='50%' volume='-20dB'>One two three four.</prosody>"
        "<break time='1s'/>Five six.</speak>"
    )
    length_s = len("One two three four.") * 0.06
    assert (len(slow) - len(plain)) / SAMPLE_RATE == pytest.approx(length_s, abs=0.1)
    half = SAMPLE_RATE // 2
    assert 0.05 < np.abs(slow[:half]).max() / np.abs(plain[:half]).max() < 0.2
    tail = round(0.5 * SAMPLE_RATE)
    np.testing.assert_allclose(slow[-tail:], plain[-tail:], atol=1e-3)


async def test_engines_with_a_speed_of_their_own_get_the_rate() -> None:
    speech, one, _ = pipeline(replace(INFO, native_speed=True))
    text = "<speak>One. <prosody rate='x-slow'>Two.</prosody></speak>"
    await spoken(speech, SpeechRequest(text, speed=1.5))
    assert [call.speed for call in one.calls] == [1.5, 0.75]
    speech, one, _ = pipeline(replace(INFO, native_speed=True, slowest_speed=1.0))
    chunks = await spoken(speech, SpeechRequest(text, speed=1.5))
    assert [call.speed for call in one.calls] == [1.5, 1.0]
    assert sum(len(chunk.audio.pcm) for chunk in chunks) > 0


async def test_voices_take_turns_and_keep_the_rate_of_the_first() -> None:
    other = replace(OTHER, sample_rate=16_000)
    speech, one, two = pipeline(other=other)
    text = (
        '<speak>I say. <voice name="ann">And I.</voice> <lang xml:lang="de-DE">Und ich.</lang>'
        '<voice name="' + VOICE.voice_id + '">Me again.</voice></speak>'
    )
    chunks = await spoken(speech, SpeechRequest(text))
    assert texts(one) == ["I say.", "Me again."]
    assert [(call.text, call.voice, call.language) for call in two.calls] == [
        ("And I.", "a", "en"),
        ("Und ich.", "d", "de"),
    ]
    assert {chunk.audio.sample_rate for chunk in chunks} == {SAMPLE_RATE}


async def test_the_turns_of_a_script_have_their_voices_and_pauses() -> None:
    speech, one, two = pipeline()
    turns = (
        ScriptTurn(text="Hello there.", voice="Vera"),
        ScriptTurn(text="<speak>Hi <break time='1s'/> Vera.</speak>", voice="Ann", pause=2.0),
        ScriptTurn(text="Bye."),
    )
    text = "\n".join(turn.text for turn in turns)
    request = SpeechRequest(text, script=turns, timings=True, enhance=False)
    chunks = await spoken(speech, request)
    assert (texts(one), texts(two)) == (["Hello there.", "Bye."], ["Hi", "Vera."])
    assert silences(joined(chunks)) == pytest.approx([2.0, 1.0, 0.45], abs=0.08)
    words = [word for chunk in chunks for word in chunk.words]
    assert [text[one.text_start : one.text_end] for one in words] == [
        *("Hello", "there.", "Hi", "Vera.", "Bye.")
    ]


async def test_the_voices_of_a_file_are_equally_loud() -> None:
    models = {"one": VoicedSpeaker(level=0.05), "two": VoicedSpeaker(level=0.2, info=OTHER)}
    speech = SpeechPipeline(models, VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")}))
    line = "We speak for long enough that our loudness can be measured well. " * 2
    turns = (ScriptTurn(text=line, voice="Vera"), ScriptTurn(text=line, voice="Ann"))
    request = SpeechRequest(f"{line}\n{line}", script=turns, timings=True)
    file = await speak(speech, request)
    second = round(file.words[len(file.words) // 2].start_s * SAMPLE_RATE)
    levels = [measure_lufs(one, SAMPLE_RATE) for one in np.split(file.audio.pcm, [second])]
    assert levels == pytest.approx([-16.0, -16.0], abs=1.5)
    assert measure_lufs(file.audio.pcm, SAMPLE_RATE) == pytest.approx(-16.0, abs=0.5)


async def test_a_documents_language_chooses_only_an_unnamed_voice() -> None:
    speech, one, two = pipeline()
    text = '<speak xml:lang="de">Eins.</speak>'
    await spoken(speech, SpeechRequest(text))
    await spoken(speech, SpeechRequest(text, voice="Vera"))
    assert (texts(two), texts(one)) == (["Eins."], ["Eins."])


async def test_a_quotation_in_another_language_does_not_choose_that_of_the_rest() -> None:
    quoted = "<lang xml:lang='de'>Ich möchte heute Abend einen Tisch reservieren, bitte.</lang>"
    plan = await pipeline()[0].plan(
        SpeechRequest(f"<speak>Please listen: {quoted} Thanks.</speak>")
    )
    assert [one.spoken_in for one in plan.passages] == ["en", "de", "en"]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('<speak><voice name="Zoe">a</voice></speak>', VoiceNotFound, "no voice"),
        ('<speak>\n<lang xml:lang="xx">a</lang></speak>', InvalidRequest, "line 2.*speaks 'xx'"),
        ("<speak><break/></speak>", NothingToSpeak, "letter"),
        ("<speak/>", NothingToSpeak, "letter"),
        ('<break time="1s"/>', NothingToSpeak, "letter"),
        ("<speak>a" + '<break time="10s"/>' * 100 + "</speak>", InvalidRequest, "17 min"),
        ("<speak><prosody rate='25%'>" + "word " * 900 + "</prosody></speak>",
         InvalidRequest, "min are allowed"),
    ],
)  # fmt: skip
async def test_what_cannot_be_spoken_is_refused_before_any_work(
    text: str, error: type[Exception], message: str
) -> None:
    speech, one, _ = pipeline()
    with pytest.raises(error, match=message):
        await speech.plan(SpeechRequest(text))
    assert not one.calls


async def test_only_what_is_spoken_costs_something() -> None:
    async def characters(text: str) -> int:
        plan = await pipeline()[0].plan(SpeechRequest(text))
        return sum(len(passage.text) for passage in plan.passages)

    text = '<speak>\n  <p>Hello <emphasis level="strong">dear</emphasis>\n   world.</p>\n</speak>'
    assert await characters(text) <= len("Hello dear world.") + 2
    plain = "Hello   dear world."
    assert await characters(plain) == len(plain)


LEXICON = Lexicon(
    [
        Pronunciation(grapheme="Nginx", alias="engine X", phoneme="ˈɛndʒɪn ˈɛks"),
        Pronunciation(grapheme="IP", alias="internet protocol"),
        Pronunciation(grapheme="New York", alias="the Big Apple", case_sensitive=False),
        Pronunciation(grapheme="AT&T", alias="the phone company"),
        Pronunciation(grapheme="chat", alias="matou", language="fr"),
        Pronunciation(grapheme="東京", phoneme="to:k_joo", alphabet="x-sampa"),
    ]
)
NAMED = (DictionaryRef(id="any"),)


class OneDictionary(Dictionaries):
    """Has the same entries for every name."""

    def __init__(self) -> None:
        pass

    async def lexicon(self, workspace_id: int, which: tuple[DictionaryRef, ...]) -> Lexicon:
        return LEXICON


def with_names(text: str, **options: bool) -> SpeechRequest:
    return replace(SpeechRequest(text, workspace_id=1, pronunciations=NAMED), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("takes", "said"),
    [
        (True, "Nginx, an internet protocol server"),
        (False, "engine X, an internet protocol server"),
    ],
)
async def test_dictionaries_speak_phonemes_where_the_voice_can(takes: bool, said: str) -> None:
    speech, one, _ = pipeline(replace(INFO, phonemes=takes))
    text = "Nginx, an IP server of NEW YORK chat and AT&T, ip."
    chunks = await spoken(speech, with_names(text, timings=True))
    (call,) = one.calls
    assert call.text == f"{said} of the Big Apple chat and the phone company, ip."
    assert call.phonemes == (((0, 5, "ˈɛndʒɪn ˈɛks"),) if takes else ())
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.word for word in words] == [
        *("Nginx,", "an", "IP", "server", "of", "NEW YORK", "chat", "and", "AT&T,", "ip.")
    ]
    assert all(text[word.text_start : word.text_end] == word.word for word in words)


async def test_dictionaries_find_words_of_documents_across_entities_and_lines() -> None:
    speech, one, _ = pipeline()
    text = "<speak>In New\n York <sub alias='it'>IP</sub> AT&amp;T.</speak>"
    await spoken(speech, with_names(text))
    assert texts(one) == ["In the Big Apple it the phone company."]


async def test_dictionaries_find_words_in_scripts_without_spaces() -> None:
    japanese = replace(VOICE, language="ja")
    speech, one, _ = pipeline(replace(INFO, phonemes=True, voices=(japanese,)))
    await spoken(speech, with_names("私は東京にいます。"))
    assert one.calls[0].phonemes == ((2, 4, "toːkʲoo"),)


async def test_long_texts_keep_their_pronunciations_in_every_chunk() -> None:
    speech, one, _ = pipeline(replace(INFO, phonemes=True))
    text = "Our Nginx server talks to another Nginx server, 12 times a day. " * 20
    await spoken(speech, with_names(text))
    spans = [(call.text[start:end]) for call in one.calls for start, end, _ in call.phonemes]
    assert spans == ["Nginx"] * 40


async def test_a_plain_text_is_not_read_in_another_way() -> None:
    speech, one, _ = pipeline()
    text = "He wrote <speak>, a < b & c &amp; d [x](/y/), and <break> it. \U000f0000Nginx\U000f0000"
    await spoken(speech, SpeechRequest(text))
    assert one.calls[0].text == "He wrote speak, a less than b and c and d x, and break it."
    assert texts(one)[1:] == ["Nginx"]


@pytest.mark.slow
def test_words_are_found_in_linear_time_whatever_the_dictionary_has() -> None:
    alike = [{"grapheme": "a " * n + "b", "alias": "c"} for n in range(1, 49)]
    alike += [{"grapheme": "a " * n, "alias": str(n), "language": "xx"} for n in range(1, 51)]
    lexicon = Lexicon(Pronunciation(**one) for one in alike)  # type: ignore[arg-type]
    found: list[object] = []
    # About 28 are measured.
    check_cpu_units(lambda: found.extend(lexicon.find("a " * 25_000, "en")), below=120)
    assert found == []


SAID = st.lists(st.sampled_from(["a", "A", "b", "c-"]), min_size=1, max_size=3).map(" ".join)


@given(
    graphemes=st.lists(st.tuples(SAID, st.booleans(), st.sampled_from([None, "en", "de"]))),
    text=st.lists(st.sampled_from(["a", "A", "b", "c", "-"]), max_size=12).map(" ".join),
)
def test_entries_are_found_as_a_search_of_all_of_them_would(
    graphemes: list[tuple[str, bool, str | None]], text: str
) -> None:
    entries = [
        Pronunciation(grapheme=said, alias=str(number), case_sensitive=exact, language=language)
        for number, (said, exact, language) in enumerate(graphemes)
    ]
    words = text.split()
    expected: list[str | None] = []
    at = 0
    while at < len(words):
        fits = []
        for number, one in enumerate(entries):
            form = one.grapheme.replace("-", " -").split()
            there = words[at : at + len(form)]
            folded = [word.casefold() for word in there] == [word.casefold() for word in form]
            if one.language != "de" and (there == form or (folded and not one.case_sensitive)):
                fits.append((-len(form), number, one.alias))
        length, _, alias = min(fits, default=(-1, 0, None))
        expected += [alias] if fits else []
        at -= length
    assert [entry.alias for _, _, entry in Lexicon(entries).find(text, "en")] == expected


def test_the_first_of_several_entries_counts_and_the_longest_words() -> None:
    lexicon = Lexicon(
        [
            Pronunciation(grapheme="ip", alias="1", case_sensitive=False),
            Pronunciation(grapheme="IP", alias="2"),
            Pronunciation(grapheme="IP address", alias="3"),
            Pronunciation(grapheme="(tm)", alias="4"),
        ]
    )
    found = lexicon.find("IP Ip IP  address IP addresses x(tm)", "en")
    assert [entry.alias for _, _, entry in found] == ["1", "1", "3", "1", "4"]
