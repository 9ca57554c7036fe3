"""`search`, `replace` and `detect_entities` of recordings and streams."""

from typing import Any

import httpx
import pytest

from api.deepgram.findings import Replacements, entities_json, search_hits
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from tests.api.deepgram.socket_client import STREAM, best, deepgram
from tests.api.deepgram.test_recordings import SCRIPT, TALK, listen
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

Headers = dict[str, str]
SPOKEN = "My name is Monika Jon, call 555 123 4567. The brown foxes zendesk ZenDesk."


def words_of(text: str) -> list[Word]:
    return [Word(word, at, at + 0.5, 0.9) for at, word in enumerate(text.split())]


def test_replacements_keep_times_and_marks_and_follow_capitals() -> None:
    terms = ["monika jon:Monica John", "ZenDesk:Zendesk", "call", ":", "jon:never reached"]
    kept = Replacements(terms).of(words_of(SPOKEN))
    text = "My name is Monica John, 555 123 4567. The brown foxes zendesk Zendesk."
    assert " ".join(word.word for _, word in kept) == text
    assert kept[3] == (3, Word("Monica John,", 3, 4.5, 0.9))
    assert not Replacements([":", " :x"])


def test_hits_are_spelled_alike_and_entities_count_words() -> None:
    words = words_of(SPOKEN)
    fox, nothing = search_hits(words, ["brown fox", "epistemology"], " ")
    assert nothing == {"query": "epistemology", "hits": []}
    assert fox["hits"] == [{"confidence": 0.9, "start": 10, "end": 11.5, "snippet": "brown foxes"}]
    name, phone = entities_json(words, " ", "en")
    assert name == {
        "label": "NAME",
        "value": "Monika Jon",
        "raw_value": "monika jon",
        "confidence": 0.9,
        "start_word": 3,
        "end_word": 5,
    }
    assert (phone["label"], phone["start_word"], phone["end_word"]) == ("PHONE_NUMBER", 6, 9)


@pytest.fixture
def token(auth: Headers) -> Headers:
    return {"Authorization": auth["Authorization"].replace("Bearer", "Token")}


async def test_a_recording_is_searched_and_replaced_in_each_channel(
    client: httpx.AsyncClient, token: Headers
) -> None:
    query: dict[str, Any] = {
        "search": ["brown fox", "zebra"],
        "replace": ["quick brown:slow red", "the"],
        "detect_entities": "true",
        "utterances": "true",
    }
    answer = await listen(client, token, TALK, **query)
    results = answer.json()["results"]
    (channel,) = results["channels"]
    (alternative,) = channel["alternatives"]
    assert alternative["transcript"] == results["utterances"][0]["transcript"] == "slow red fox"
    assert len(alternative["words"]) == 2 and alternative["entities"] == []
    assert [term["query"] for term in channel["search"]] == ["brown fox", "zebra"]
    assert "X-Ignored-Fields" not in answer.headers
    plain = (await listen(client, token, TALK)).json()["results"]["channels"][0]
    assert plain["alternatives"][0]["transcript"] == SCRIPT and "search" not in plain
    assert "entities" not in plain["alternatives"][0]


async def test_a_stream_has_hits_replacements_and_entities_in_finals(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    def sentence(_: int, request: TranscriptionRequest) -> Transcript:
        return Transcript("en", 0.9, (Segment(SPOKEN, 0, 1, -0.1, 0, tuple(words_of(SPOKEN))),))

    fake.answer = sentence
    query = {"search": "foxes", "replace": "monika:Monica", "detect_entities": "true"}
    async with deepgram(stt_server, "/v1/listen", **STREAM, **query) as client:
        await client.send_pcm(quiet(0.5), loud(1), quiet(1))
        (result,) = await client.until("Results")
    assert best(result)["transcript"].startswith("My name is Monica Jon, call")
    assert [hit["snippet"] for hit in result["channel"]["search"][0]["hits"]] == ["foxes"]
    labels = [entity["label"] for entity in result["entities"]]
    assert labels == ["NAME", "PHONE_NUMBER"]
