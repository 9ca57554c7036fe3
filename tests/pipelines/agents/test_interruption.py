"""Which speech of the user ends that of the agent."""

import pytest

from pipelines.agents.interruption import interrupts, is_back_channel, is_echo

SPOKEN = "the library opens at nine in the morning and closes at six"


@pytest.mark.parametrize(
    "text", ["Mhm.", "Mm-hmm.", "Uh-huh, yeah.", "Okay, I see.", "Right.", "Ja, genau.", "うん。"]
)
def test_back_channels_do_not_interrupt(text: str) -> None:
    assert is_back_channel(text) and not interrupts(text, SPOKEN)


@pytest.mark.parametrize(
    "text",
    ["Wait.", "No, stop.", "Okay, but what about Sunday?", "Yes, and on Monday?", "Nein, halt."],
)
def test_words_of_the_user_interrupt(text: str) -> None:
    assert interrupts(text, SPOKEN)


def test_noise_without_words_does_not_interrupt() -> None:
    assert not interrupts("", SPOKEN) and not interrupts(" ... ", SPOKEN)


@pytest.mark.parametrize(
    "text", ["opens at nine in the morning", "Library opens at 9 in the morning and closes"]
)
def test_the_echo_of_the_agent_does_not_interrupt(text: str) -> None:
    assert is_echo(text, SPOKEN) and not interrupts(text, SPOKEN)


def test_a_question_with_some_of_the_same_words_is_no_echo() -> None:
    assert interrupts("At nine? And when does it close on Sundays?", SPOKEN)
