"""What is spoken of a growing answer, and when it is sent."""

import asyncio
import math
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.llm.base import GenerationDelta
from pipelines.agents.clauses import FOLLOWING, LONGEST_CLAUSE, ClauseSplitter, Urgency
from pipelines.agents.pace import WritingPace
from pipelines.agents.playback import Playback
from pipelines.agents.response import Answer, AnswerText
from pipelines.text.spoken_length import LETTERS_PER_S
from pipelines.tts.session import EncodedChunk
from tests.clock import Clock

ANSWER = "Well, I think so. It costs 3.50 dollars, or 1,000 yen, a day. Shall I book it?"


def pieces_of(
    text: str, urgency: Urgency = Urgency.NONE, *, step: int = 1, letters_per_s: float = math.inf
) -> list[str]:
    splitter = ClauseSplitter("en")
    pieces = []
    for start in range(0, len(text), step):
        splitter.push(text[start : start + step])
        if piece := splitter.take(urgency, letters_per_s=letters_per_s):
            pieces.append(piece)
    return [*pieces, *filter(None, [splitter.finish()])]


def test_a_clause_comes_first_and_then_whole_sentences() -> None:
    assert pieces_of(ANSWER) == [
        "Well,",
        " I think so. ",
        "It costs 3.50 dollars, or 1,000 yen, a day. ",
        "Shall I book it?",
    ]
    long = "If you come to the station by noon, I will meet you there. Bye."
    assert pieces_of(long)[0] == "If you come to the station "


def test_the_first_words_do_not_wait_for_a_mark() -> None:
    said = "There's a story about a dog named Max who was a good dog. It ends."
    assert pieces_of(said)[0] == "There's a story "
    assert pieces_of("An answer interests everybody here. Bye.")[0].endswith("here. ")


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        ("Yes, you can bring your dog along.", "Yes,"),
        ("Sure! I will call one.", "Sure!"),
        ("Ja, der Hund darf mit.", "Ja,"),
        ("1,000 yen a day, and no less.", "1,000 yen a day,"),
        ("A, B and C are open.", "A, B and C are open."),
    ],
)
def test_a_word_that_opens_an_answer_is_spoken_at_once(answer: str, first: str) -> None:
    assert pieces_of(answer)[0] == first


def test_a_first_piece_without_a_phrase_ends_at_a_word() -> None:
    answer = "The password that guests need is Lindenhof and the number that their key shows."
    first = pieces_of(answer)[0]
    assert first.endswith(" ") and len(first) <= 48


def test_a_hurry_takes_clauses_but_cuts_no_number() -> None:
    assert pieces_of(ANSWER, Urgency.SOON) == [
        "Well,",
        " I think so. ",
        "It costs 3.50 dollars,",
        " or 1,000 yen,",
        " a day. ",
        "Shall I book it?",
    ]


def test_a_text_without_marks_is_cut_at_a_space() -> None:
    first = pieces_of("word " * 100, Urgency.SOON)[0]
    assert len(first) <= LONGEST_CLAUSE and first.endswith("word ")


@pytest.mark.parametrize(
    "answer",
    [
        "Sure! Here is a story about a dog: he barks all day.",
        "I'm sorry, but I do not have the weather of today.",
        "To get from the station to the museum, take a bus.",
        "Yes. It opens at nine in the morning.",
    ],
)
def test_a_first_piece_sounds_until_the_next_is_written(answer: str) -> None:
    written = {}
    for letters_per_s in (25.0, 250.0):
        splitter = ClauseSplitter("en")
        piece = ""
        count = 0
        while not piece:
            splitter.push(answer[count])
            count += 1
            piece = splitter.take(Urgency.NONE, letters_per_s=letters_per_s)
        sounds_s = len(piece) / LETTERS_PER_S
        assert count + sounds_s * letters_per_s - len(piece) >= FOLLOWING
        written[letters_per_s] = count
    assert written[250.0] <= written[25.0] < len(answer)


@pytest.mark.parametrize(
    ("language", "answer", "least"),
    [
        ("zh", "好的，我帮你查一下明天上海的天气。请稍等。", 0.6),
        ("ja", "はい、かしこまりました。明日の天気を調べます。", 0.6),
        ("zh", "当然可以，我已经把会议改到下午三点了。", 0.9),
    ],
)
def test_a_first_piece_of_wide_letters_does_not_wait_longer(
    language: str, answer: str, least: float
) -> None:
    splitter = ClauseSplitter(language)
    for count, letter in enumerate(answer, 1):
        splitter.push(letter)
        if splitter.take(Urgency.NONE, letters_per_s=3 * 12.0):
            assert count <= least * len(answer)
            return
    pytest.fail("nothing was spoken before the end")


def test_a_listener_who_has_heard_everything_gets_any_words() -> None:
    text = "He said nothing. Nobody here understands yesterday's somewhat unusual interruption."
    pieces = pieces_of(text, Urgency.NOW)
    assert len(pieces) > 3 and all(piece.endswith((" ", ".")) for piece in pieces)
    assert pieces_of(text) == ["He said nothing. ", text[17:]]


def test_the_pace_of_writing_ignores_what_was_written_before() -> None:
    pace = WritingPace()
    pace.begin()
    pace.count(400, waited_s=0.0)
    assert pace.letters_per_s == pytest.approx(60)
    for _ in range(20):
        pace.count(5, waited_s=0.2)
    assert pace.letters_per_s == pytest.approx(25, rel=0.05)
    pace.begin()
    pace.count(300, waited_s=0.001)
    assert pace.letters_per_s == pytest.approx(25, rel=0.05)


@given(
    st.text(max_size=200),
    st.sampled_from(Urgency),
    st.integers(1, 20),
    st.sampled_from([1.0, 25.0, math.inf]),
)
def test_all_pieces_together_are_the_answer(
    text: str, urgency: Urgency, step: int, letters_per_s: float
) -> None:
    pieces = pieces_of(text, urgency, step=step, letters_per_s=letters_per_s)
    assert "".join(pieces) == text


def test_the_playback_knows_what_was_heard() -> None:
    clock = Clock()
    playback = Playback(lead_s=0.5, clock=clock)
    playback.count(1.0)
    clock.now += 0.3
    assert playback.left_s == pytest.approx(0.7) and playback.played_s == pytest.approx(0.3)
    clock.now += 5  # the client had a gap
    playback.count(0.2)
    assert playback.sent_s == pytest.approx(1.2) and playback.left_s == pytest.approx(0.2)


async def test_audio_keeps_its_lead_and_waits_while_held() -> None:
    playback = Playback(lead_s=0.05)
    playback.count(0.15)
    began = asyncio.get_running_loop().time()
    await playback.wait_for_turn()
    assert asyncio.get_running_loop().time() - began > 0.05
    playback.hold()
    waiting = asyncio.create_task(playback.wait_for_turn())
    await asyncio.sleep(0.2)
    assert not waiting.done() and playback.is_held
    playback.resume()
    await waiting


@pytest.mark.parametrize("slowness", [0.0, 1.0])
async def test_a_voice_about_to_run_dry_gets_parts_of_sentences(slowness: float) -> None:
    asked: list[tuple[str, bool]] = []

    class Stream:
        charged = 0
        voice = SimpleNamespace(language="en", model=SimpleNamespace(real_time_factor=0.0))

        async def speak(
            self, text: str, *, early_start: bool
        ) -> AsyncGenerator[EncodedChunk, None]:
            asked.append((text, early_start))
            duration_s = len(text) / 40
            await asyncio.sleep(slowness * duration_s)
            yield EncodedChunk(bytes(2 * round(duration_s * 500)), None)

    class Completion:
        model = "model"

        async def deltas(self, *, is_paced: bool) -> AsyncGenerator[GenerationDelta, None]:
            yield GenerationDelta(ANSWER[:18])
            await asyncio.sleep(0.05)
            yield GenerationDelta(ANSWER[18:])

        def deliver(self, characters: float) -> None: ...

        async def aclose(self) -> None: ...

    speaker: Any = SimpleNamespace(stream=Stream(), credit=None)
    completion: Any = Completion()
    answer = Answer(completion, speaker, Playback(lead_s=0.4), bytes_per_s=1000)
    async for _ in answer.pieces():
        pass
    assert asked[0] == ("Well, I think so. ", True)
    assert asked[1][1] is (slowness > 0)
    assert "".join(text for text, _ in asked) == ANSWER


@pytest.mark.parametrize("real_time_factor", [0.01, 0.5])
async def test_the_language_model_pauses_while_a_slow_voice_works(real_time_factor: float) -> None:
    made_while_working: list[str] = []
    works = False

    class Stream:
        charged = 0
        voice = SimpleNamespace(
            language="en", model=SimpleNamespace(real_time_factor=real_time_factor)
        )

        async def speak(
            self, text: str, *, early_start: bool
        ) -> AsyncGenerator[EncodedChunk, None]:
            nonlocal works
            works = True
            await asyncio.sleep(0.3)
            works = False
            yield EncodedChunk(bytes(1000), None)

    class Completion:
        model = "model"
        pauses = 0

        async def deltas(self, *, is_paced: bool) -> AsyncGenerator[GenerationDelta, None]:
            for word in ANSWER.split(" "):
                await asyncio.sleep(0.02)
                if works:
                    made_while_working.append(word)
                yield GenerationDelta(f"{word} ")

        async def pause(self) -> bool:
            self.pauses += 1
            return True

        def deliver(self, characters: float) -> None: ...

        async def aclose(self) -> None: ...

    speaker: Any = SimpleNamespace(stream=Stream(), credit=None)
    completion: Any = Completion()
    answer = Answer(completion, speaker, Playback(lead_s=0.4), bytes_per_s=1000)
    text = "".join([piece.text async for piece in answer.pieces() if isinstance(piece, AnswerText)])
    assert text == f"{ANSWER} "
    if real_time_factor > 0.2:
        assert completion.pauses >= 2 and not made_while_working
    else:
        assert not completion.pauses and made_while_working
