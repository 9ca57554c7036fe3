"""Redaction in live sessions: interims, finals, the saved event, and marks."""

import asyncio
import json
from typing import Any

import pytest

from api.services import Services
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from tests.api.money import books_of
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.stt.client import finals, stt
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

SAID = "my name is Xanthe Quill and my number is four one five five five five zero one two three ok"
MASKED = "my name is [NAME] and my number is [PHONE] ok"


def growing(number: int, request: TranscriptionRequest) -> Transcript:
    """More words of SAID with each request, and all for a final."""
    words = SAID.split()
    said = words if request.options.words else words[: 2 + number]
    timed = tuple(Word(word, at / 10, (at + 1) / 10, 0.9) for at, word in enumerate(said))
    shown = timed if request.options.words else ()
    return Transcript("en", 0.9, (Segment(" ".join(said), 0.0, 5.0, -0.1, 0.0, shown),))


def no_secret(text: str) -> bool:
    return not any(secret in text for secret in ("Xanthe", "Quill", "four", "five"))


async def listen(server: SocketServer, **config: Any) -> list[dict[str, Any]]:
    async with stt(server) as client:
        await client.start(continuous_mode=True, interim_results_frequency=300, **config)
        for _ in range(18):
            await client.send_pcm(loud(0.4))
            await asyncio.sleep(0.05)
        await client.send_pcm(quiet(1))
        messages = await client.receive_until("transcription")
        while not messages[-1].get("is_final"):
            messages += await client.receive_until("transcription")
        messages += (await client.stop())[0]
    return messages


async def test_interims_finals_and_the_event_are_masked(
    plain: Services, stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = growing
    books = await books_of(plain, {"Authorization": f"Bearer {stt_server.key}"})
    await books.add_webhook("stt.completed")
    messages = await listen(stt_server, redact=["name", "phone"])
    texts = [one["text"] for one in messages if one.get("type") == "transcription"]
    assert len(texts) > 3 and all(no_secret(text) for text in texts), texts
    assert no_secret(json.dumps(messages))
    (final,) = finals(messages)
    assert final["text"] == MASKED
    assert [one["word"] for one in final["words"]] == MASKED.split()
    (event,) = await books.events()
    assert event["data"]["text"] == MASKED


async def test_marks_are_of_finals_and_have_times(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = growing
    (final,) = finals(await listen(stt_server, redact=["phone"], redact_mode="mark"))
    (phone,) = final["entities"]
    assert final["text"] == SAID
    assert SAID[phone["start"] : phone["end"]].startswith("four one")
    assert phone["end_time"] - phone["start_time"] == pytest.approx(1.0)


@pytest.mark.parametrize("redact", ["name", ["names"], [1]])
async def test_an_unknown_kind_is_an_error(stt_server: SocketServer, redact: object) -> None:
    async with stt(stt_server) as client:
        assert "redact" in (await client.start(redact=redact))["error"]


async def test_both_halves_of_an_announced_number_are_masked(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    texts = ["My phone number is 415.", "555.", "0123 it is.", "Thanks."]

    def hear(number: int, request: TranscriptionRequest) -> Transcript:
        return Transcript("en", 0.9, (Segment(texts[number], 0.0, 1.0, -0.1, 0.0, ()),))

    fake.answer = hear
    async with stt(stt_server) as client:
        await client.start(continuous_mode=True, redact=["phone"])
        await client.send_pcm(*[loud(0.6), quiet(1)] * 4)
        messages, _ = await client.stop()
    shown = [one["text"] for one in finals(messages)]
    assert shown == ["My phone number is [PHONE].", "[PHONE].", "[PHONE] it is.", "Thanks."]
