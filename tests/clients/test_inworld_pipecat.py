"""Pipecat's services for Inworld, as they are published, pointed at this service."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.local_server import Server
from tests.clients.conftest import speak_through
from tests.clients.inworld_texts import LETTER, SENTENCE
from tests.clients.registry_clients import RegistryClients

SCRIPT = Path(__file__).with_name("inworld_pipecat.py")
CHARACTER_S = 0.06  # of the tone


@pytest.fixture(scope="module")
def seen(registry_clients: RegistryClients, tone_server: Server) -> dict[str, Any]:
    """What the services heard of all turns; one run, since it takes seconds to start."""
    return speak_through(registry_clients, SCRIPT, tone_server)


def is_whole(turn: dict[str, Any], text: str) -> bool:
    """Whether it is one context as long as the text, with its words in order."""
    return (
        len(turn["contexts"]) == 1
        and [word.strip() for word in turn["words"]] == text.split()
        and turn["times"] == sorted(turn["times"])
        and turn["seconds"] == pytest.approx(len(text) * CHARACTER_S, rel=0.4)
    )


def test_turns_have_their_words_in_order(seen: dict[str, Any]) -> None:
    assert is_whole(seen["first"], SENTENCE)
    assert is_whole(seen["second"], LETTER)


@pytest.mark.parametrize("turn", ["after", "after the end"])
def test_an_interrupted_turn_leaves_nothing_to_the_next(seen: dict[str, Any], turn: str) -> None:
    assert is_whole(seen[turn], SENTENCE)


def test_turns_that_came_to_nothing_do_not_use_up_the_socket(seen: dict[str, Any]) -> None:
    assert is_whole(seen["after nothing"], SENTENCE)


def test_failures_are_errors_of_the_service(seen: dict[str, Any]) -> None:
    assert "no voice has that" in seen["unknown voice"]["error"]
    assert "401" in seen["wrong key"]["error"]


@pytest.mark.parametrize("streaming", [True, False])
def test_the_service_over_http_hears_the_same(seen: dict[str, Any], streaming: bool) -> None:
    assert is_whole(seen[f"http, streaming: {streaming}"], LETTER)
