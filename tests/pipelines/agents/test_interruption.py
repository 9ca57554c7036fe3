"""Which speech of the user ends that of the agent."""

import re

import pytest

from pipelines.agents.interruption import EXPECTED, Heard, interrupts, is_back_channel, is_echo

SPOKEN = "the library opens at nine in the morning and closes at six"


@pytest.mark.parametrize(
    "text",
    [
        "Mhm.",
        "Mm-hmm.",
        "Uh-huh, yeah.",
        "Okay, I see.",
        "Right.",
        "Ja, genau.",
        "うん。",
        "Uhum.",
        "Ähm",
    ],
)
def test_back_channels_do_not_interrupt(text: str) -> None:
    assert is_back_channel(text) and not interrupts(Heard(text), SPOKEN)


@pytest.mark.parametrize(
    "text",
    ["Wait.", "No, stop.", "Okay, but what about Sunday?", "Yes, and on Monday?", "Nein, halt."],
)
def test_words_of_the_user_interrupt(text: str) -> None:
    assert interrupts(Heard(text), SPOKEN)


def test_noise_without_words_does_not_interrupt() -> None:
    assert not interrupts(Heard(""), SPOKEN) and not interrupts(Heard(" ... "), SPOKEN)


@pytest.mark.parametrize(
    "text", ["opens at nine in the morning", "Library opens at 9 in the morning and closes"]
)
def test_the_echo_of_the_agent_does_not_interrupt(text: str) -> None:
    assert is_echo(text, SPOKEN) and not interrupts(Heard(text), SPOKEN)


def test_a_question_with_some_of_the_same_words_is_no_echo() -> None:
    assert interrupts(Heard("At nine? And when does it close on Sundays?"), SPOKEN)


def test_a_short_sound_interrupts_only_when_it_is_understood() -> None:
    assert not interrupts(Heard("Emil.", 0.4, speech_s=0.4), SPOKEN)
    assert interrupts(Heard("Stop.", 0.6, speech_s=0.4), SPOKEN)
    assert interrupts(Heard("Emil has called me twice.", 0.4, speech_s=1.5), SPOKEN)


def test_the_beginning_of_speech_interrupts_only_when_it_is_long_and_understood() -> None:
    assert not interrupts(Heard("Always.", 0.8, speech_s=0.35, is_over=False), SPOKEN)
    assert not interrupts(Heard("Je te dis un eston.", 0.45, speech_s=1.1, is_over=False), SPOKEN)
    assert interrupts(Heard("What does that", 0.7, speech_s=1.1, is_over=False), SPOKEN)


@pytest.mark.parametrize("language", EXPECTED)
def test_expected_sounds_are_back_channels_and_a_few_interruptions(language: str) -> None:
    sounds = re.findall(r"[^.?]+", EXPECTED[language])
    *back_channels, stop, wait, no = (sound.strip() for sound in sounds)
    assert all(map(is_back_channel, back_channels))
    assert not any(map(is_back_channel, (stop, wait, no)))
