"""POST /tts/explain: what would be spoken, free of charge."""

from typing import Any

import httpx
import pytest

from api.app import create_app
from api.services import Services
from models.registry import TTS, load_model
from models.weights.store import WeightStore
from tests.api.in_process import client_of
from tests.api.local_services import local_services
from tests.api.money import Books
from tests.api.native.speech.test_speech import Headers, assert_fault
from tests.local_ports import LocalTTSModel


async def explain(client: httpx.AsyncClient, auth: Headers, **body: Any) -> dict[str, Any]:
    answer = await client.post("/tts/explain", json=body, headers=auth)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_text_is_shown_as_it_would_be_spoken_at_no_charge(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    text = "It costs $5. See you at 8:30!"
    shown = await explain(client, auth, text=text)
    assert [one["text"] for one in shown["sentences"]] == [
        "It costs five dollars.",
        "See you at eight thirty!",
    ]
    assert {one["language"] for one in shown["sentences"]} == {"en"}
    assert shown["characters"] == len(text)
    assert shown["price"] == pytest.approx(len(text) * 15e-6)
    assert shown["sentences"][0]["phonemes"] is None  # the tone engine has none
    assert 1 < shown["estimated_seconds"] < 5
    assert await books.entries() == [] or "capture" not in await books.kinds()


async def test_a_voice_is_named_by_its_name_or_its_id(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voices = (await client.get("/default-voices", headers=auth)).json()["data"]
    (bass,) = (one["voice_id"] for one in voices if one["name"] == "Bass")
    for named in ({"voice": bass}, {"voice": bass.upper()}, {"voice_id": bass}):
        assert (await explain(client, auth, text="a", **named))["voice_id"] == bass
    unknown = {"text": "a", "voice": "00000000-0000-4000-8000-000000000000"}
    answer = await client.post("/tts/explain", json=unknown, headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (404, "voice_not_found")


async def test_voices_languages_and_documents_are_shown(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voices = (await client.get("/default-voices", headers=auth)).json()["data"]
    ids = {one["name"]: one["voice_id"] for one in voices}
    text = '<speak>One.<break time="4s"/><voice name="Ton">Zwei 2.</voice></speak>'
    shown = await explain(client, auth, text=text, voice="Bass")
    assert [(one["text"], one["voice_id"], one["language"]) for one in shown["sentences"]] == [
        ("One.", ids["Bass"], "en"),
        ("Zwei zwei.", ids["Ton"], "de"),
    ]
    assert shown["voice_id"] == ids["Bass"]
    assert shown["estimated_seconds"] > 4
    assert (await explain(client, auth, text="Hi 2.", language="de"))["language"] == "de"


async def test_faults_are_those_of_the_synthesis(client: httpx.AsyncClient, auth: Headers) -> None:
    for text, words in {"<speak>": ["line 1, column 8"], "!": ["letter"]}.items():
        answer = await client.post("/tts/explain", json={"text": text}, headers=auth)
        assert_fault(answer, words)


async def test_phonemes_of_the_engine_are_shown_with_those_of_dictionaries(
    services: Services, auth: Headers
) -> None:
    settings = services.infrastructure.settings
    weights = WeightStore(settings.weights_dir)
    model = LocalTTSModel(*load_model(TTS, "tts/hibari", weights))
    app = create_app(local_services(settings, speakers={"fast": model}))
    async with client_of(app) as client:
        entries = [{"grapheme": "tomato", "phoneme": "təˈmɑːtəʊ"}]
        body = {"name": "n", "entries": entries}
        made = (await client.post("/pronunciations", json=body, headers=auth)).json()
        plain = await explain(client, auth, text="A tomato, please.")
        assert plain["sentences"][0]["phonemes"] == "ɐ təmˈATO, plˈiz."
        named = {"text": "A tomato, please.", "pronunciations": [made["id"]]}
        shown = await explain(client, auth, **named)
        assert shown["sentences"][0]["phonemes"] == "ɐ təmˈɑtQ, plˈiz."
        spoken = await client.post("/tts-synthesize", json=named | {"timestamps": True},
                                   headers=auth)  # fmt: skip
        assert [one["word"] for one in spoken.json()["words"]] == ["A", "tomato,", "please."]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello Anna!", "en"),
        ("Hello Zoë!", "en"),
        ("Thanks, André.", "en"),
        ("My name is François.", "en"),
        ("Hi Hans!", "en"),
        ("Ok Google.", "en"),
        ("It was déjà vu.", "en"),
        ("Das Meeting ist um 15:30 Uhr.", "de"),
        ("Der Server ist down.", "de"),
        ("मैं Python सीखता हूँ।", "hi"),
    ],
)
async def test_names_and_loan_words_do_not_choose_the_language(
    client: httpx.AsyncClient, auth: Headers, text: str, language: str
) -> None:
    shown = await explain(client, auth, text=text)
    assert {sentence["language"] for sentence in shown["sentences"]} == {language}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "He walked each morning down the narrow street behind the\r\nchurch, as if in a dream.",
            1,
        ),
        (
            "Er ging jeden Morgen durch die schmale Straße hinter der alten\nKirche, wie im Traum.",
            1,
        ),
        ("Il longeait chaque matin la rue étroite derrière la vieille\néglise, comme en rêve.", 1),
        ("> I think that the meeting of the committee should be moved\n> to Monday.", 1),
        ("The children thought that it was a won-\nderful evening.", 1),
        ("Twelve eggs\nA pound of butter\nOlive oil", 3),
        ("Shall I compare thee to a summer’s day?\nThou art more lovely and more temperate:", 2),
        ("The Harbour\nHe walked each morning.", 2),
    ],
)
async def test_a_line_that_is_only_wrapped_goes_on(
    client: httpx.AsyncClient, auth: Headers, text: str, sentences: int
) -> None:
    shown = await explain(client, auth, text=text)
    spoken = [sentence["text"] for sentence in shown["sentences"]]
    assert len(spoken) == sentences
    assert "won-" not in spoken[0] and ">" not in spoken[0]
