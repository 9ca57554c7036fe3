"""Repeated words in texts, and how often they are in the sound."""

import numpy as np
import pytest

from models.stt.base import STT_SAMPLE_RATE, Word
from models.stt.repetition import (
    Run,
    around,
    gathered,
    longest_run,
    onsets_s,
    recounted,
    shortened,
    spread,
)
from models.weights.store import WeightStore
from tests.models.sounds import speak, wordless

BEEPS = [None] * 12
RUNS = {
    "No, no, no.": Run(0, 1, 3),
    "I said go go go go and he left": Run(2, 1, 4),
    "Stop it, stop it, stop it.": Run(0, 2, 3),
    "no no yes yes yes": Run(2, 1, 3),
    "ha": Run(),
    "no, no": Run(0, 1, 2),
    "one two three": Run(),
    "": Run(),
}


def timed(text: str) -> list[Word]:
    return [Word(word, at / 2, at / 2 + 0.5, 1.0) for at, word in enumerate(text.split())]


@pytest.mark.parametrize("text", RUNS)
def test_the_longest_run_of_a_text_is_found(text: str) -> None:
    assert longest_run(timed(text)) == RUNS[text]


@pytest.mark.parametrize("word", ["go", "please", "hello", "water", "six", "okay"])
@pytest.mark.parametrize("times", [3, 4, 7, 12, 15])
def test_a_repeated_word_is_counted_in_the_sound(
    weights: WeightStore, word: str, times: int
) -> None:
    pcm = np.pad(speak(f"{word} " * times, weights), STT_SAMPLE_RATE // 2)
    onsets = onsets_s(pcm)
    assert abs(len(onsets) - 1 - times) <= 1
    assert onsets == sorted(onsets)
    assert 0.3 < onsets[0] and onsets[-1] < len(pcm) / STT_SAMPLE_RATE


@pytest.mark.parametrize("level", [0.01, 1.0])
def test_pauses_and_levels_change_no_count(weights: WeightStore, level: float) -> None:
    rng, said = np.random.default_rng(2), speak("hello", weights)
    pieces = [np.pad(said, (0, int(rng.integers(0, STT_SAMPLE_RATE)))) for _ in range(9)]
    assert len(onsets_s(level * np.concatenate(pieces))) - 1 == 9


@pytest.mark.parametrize("kind", wordless(1))
@pytest.mark.parametrize("seconds", [0.05, 0.3, 3])
def test_any_sound_can_be_counted(kind: str, seconds: float) -> None:
    onsets = onsets_s(wordless(seconds)[kind])
    assert onsets == sorted(onsets)


def test_words_between_others_are_written_as_often_as_they_are_said() -> None:
    text = "I said no, no, no, and he left."
    changed = recounted(timed(text), [1.0, 1.3, 1.6, 1.9, 2.2, 2.5])
    assert " ".join(word.word for word in changed) == "I said no, no, no, no, no, and he left."
    assert [word.start for word in changed[2:7]] == [1.0, 1.3, 1.6, 1.9, 2.2]


@pytest.mark.parametrize(
    ("text", "sounds"),
    [
        ("No, no, no. Turn that alarm off.", ["go", "no", "no", *BEEPS]),
        ("Bye bye everyone. Bye bye everyone. Bye bye everyone.", ["bye", "bye", "go"] * 3),
    ],
)
def test_another_sound_that_repeats_is_no_repetition_of_the_text(
    weights: WeightStore, text: str, sounds: list[str | None]
) -> None:
    time_s = np.arange(STT_SAMPLE_RATE // 5) / STT_SAMPLE_RATE
    beep = np.pad(np.sin(2 * np.pi * 1000 * time_s), (0, len(time_s))).astype(np.float32)
    pcm = np.concatenate([beep if word is None else speak(word, weights) for word in sounds])
    assert onsets_s(pcm, timed(text)) == []


def test_what_was_misheard_within_a_repetition_is_left_out() -> None:
    text = "No, no, no, don't, don't."
    changed = recounted(timed(text), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    assert " ".join(word.word for word in changed) == "No, no, no, no, no"


def test_equal_digits_are_written_as_often_as_they_are_said() -> None:
    words = spread(timed("I said 666666666666 and left."))
    changed = gathered(recounted(words, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]))
    assert " ".join(word.word for word in changed) == "I said 66666 and left."
    assert (changed[2].start, changed[2].end) == (1.0, 1.5)
    assert len(spread(timed("In 1999, 66666 and 1000000000."))) == 5


@pytest.mark.parametrize(("times", "kept"), [(4, 3), (5, 4), (15, 4)])
def test_few_repetitions_stay_in_a_shortened_signal(times: int, kept: int) -> None:
    onsets = [0.5 + 0.25 * number for number in range(times + 1)]
    pcm = np.arange(STT_SAMPLE_RATE * 5, dtype=np.float32)
    short, at_s, left_out_s = shortened(pcm, onsets)
    assert (at_s, left_out_s) == (1.0, 0.25 * (times - kept))
    assert len(short) == len(pcm) - left_out_s * STT_SAMPLE_RATE
    assert short[0] == pcm[0] and short[-1] == pcm[-1]


def test_a_run_of_few_repetitions_spans_those_that_were_left_out() -> None:
    words = around(timed("I said no, no, no, no, and he left."), at_s=2.0, left_out_s=5.0)
    run = longest_run(words)
    assert words[run.first].start == 1.0
    assert (words[run.after - 1].end, words[run.after].start) == (8.0, 8.0)
    counted = recounted(words, [1.0, 2.0, 3.0, 4.5, 6.0, 7.5, 9.0], is_few=True)
    assert " ".join(word.word for word in counted) == "I said no, no, no, no, no, no, and he left."
