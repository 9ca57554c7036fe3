"""Pipecat's services for Inworld, as they are published, pointed at this service."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.local_server import Server
from tests.clients.inworld_texts import LETTER, SENTENCE
from tests.clients.registry_clients import RegistryClients

SCRIPT = Path(__file__).with_name("inworld_pipecat.py")
pytestmark = pytest.mark.slow
CHARACTER_S = 0.06  # of the tone engine


@pytest.fixture(scope="module")
def seen(registry_clients: RegistryClients, tone_server: Server) -> dict[str, Any]:
    """The results of all turns; one run, since it takes seconds to start."""
    results: dict[str, Any] = registry_clients.run(SCRIPT, tone_server.url, tone_server.key)
    return results


def is_whole(turn: dict[str, Any], text: str) -> bool:
    """Whether it is one context as long as the text, with its words in order."""
    return (
        len(turn["contexts"]) == 1
        and [word.strip() for word in turn["words"]] == text.split()
        and turn["times"] == sorted(turn["times"])
        and turn["seconds"] == pytest.approx(len(text) * CHARACTER_S, rel=0.4)
    )


def test_turns_have_all_words_in_order(seen: dict[str, Any]) -> None:
    assert is_whole(seen["first"], SENTENCE)
    assert is_whole(seen["second"], LETTER)


@pytest.mark.parametrize("turn", ["after", "after the end"])
def test_audio_of_an_interrupted_turn_is_not_in_the_next(seen: dict[str, Any], turn: str) -> None:
    assert is_whole(seen[turn], SENTENCE)


def test_empty_turns_do_not_exhaust_the_contexts_of_the_socket(seen: dict[str, Any]) -> None:
    assert is_whole(seen["after nothing"], SENTENCE)


def test_service_errors_become_pipecat_error_frames(seen: dict[str, Any]) -> None:
    assert "no voice has that" in seen["unknown voice"]["error"]
    assert "401" in seen["wrong key"]["error"]


@pytest.mark.parametrize("streaming", [True, False])
def test_the_http_service_returns_the_whole_speech(seen: dict[str, Any], streaming: bool) -> None:
    assert is_whole(seen[f"http, streaming: {streaming}"], LETTER)
