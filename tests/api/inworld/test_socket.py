"""Inworld's socket: messages, automatic flushes, interruption and errors."""

import asyncio
from typing import Any

import pytest

from tests.api.inworld.socket_client import InworldSpeech, inworld
from tests.api.sockets.conftest import SocketServer
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHARACTER_S = 0.06  # of the tone engine
LETTER = "It costs 5 euros. Mr. Smith pays."


async def test_the_socket_stays_open_for_the_next_context_after_one_closes(
    shared_server: SocketServer,
) -> None:
    async with inworld(shared_server) as client:
        for context_id in ("one", "two"):
            made = await client.create(context_id, modelId="inworld-tts-2", temperature=0.7)
            assert (made["voiceId"], made["audioConfig"]["sampleRateHertz"]) == (
                client.voice_id,
                16_000,
            )
            assert made["modelId"] != "inworld-tts-2"  # the model of the voice
            await client.send_text("A sentence. ", context_id)
            await client.send_text("And another.", context_id)
            await client.send("flush_context", context_id)
            speech = await client.until("flushCompleted", context_id)
            assert speech.seconds == pytest.approx(24 * CHARACTER_S, abs=0.6)
            assert speech.timings == []
            await client.send("close_context", context_id)
            assert (await client.until("contextClosed", context_id)).chunks == []


async def test_automatic_mode_speaks_each_sentence_as_soon_as_it_is_complete(
    shared_server: SocketServer,
) -> None:
    async with inworld(shared_server) as client:
        await client.create(autoMode=True, autoModeStrategy="SENTENCE_BOUNDARY")
        for piece in ("Dear Dr", ". Smith, it ", "costs 3.", "50 euros", ". We"):
            await client.send_text(piece)
        speech = await client.until("flushCompleted")
        assert speech.seconds > len("Dear Dr. Smith, it costs") * CHARACTER_S
        await client.send("close_context")  # flushes "We"
        assert 0 < (await client.until("contextClosed")).seconds < 1


async def test_automatic_mode_flushes_each_message_without_waiting_for_more_text(
    shared_server: SocketServer,
) -> None:
    async with inworld(shared_server) as client:
        await client.create(autoMode=True)
        async with asyncio.timeout(PATIENCE_S):
            await client.send_text("A whole sentence.")
            assert (await client.until("flushCompleted")).chunks
            await client.send_text("A heading without a stop")
            assert (await client.until("flushCompleted")).chunks


async def test_text_is_flushed_at_a_length_or_delay_threshold(shared_server: SocketServer) -> None:
    async with inworld(shared_server) as client:
        await client.create(bufferCharThreshold=20, maxBufferDelayMs=200)
        await client.send_text("One two three four five six")
        assert (await client.until("flushCompleted")).chunks
        assert (await client.until("flushCompleted")).chunks  # "six", after its delay
        await client.send_text("seven")
        assert (await client.until("flushCompleted")).chunks


async def test_send_text_can_carry_its_own_flush(shared_server: SocketServer) -> None:
    async with inworld(shared_server) as client:
        await client.create()
        await client.send("send_text", "c", text="Say this.", flush_context={})
        assert (await client.until("flushCompleted")).chunks


async def test_rapid_flushes_are_merged_and_never_refused(shared_server: SocketServer) -> None:
    async with inworld(shared_server) as client:
        await client.create(autoMode=True)
        for number in range(30):
            await client.send_text(f"Sentence number {number}. ")
            await client.send("flush_context")
        await client.send("close_context")
        speech = await client.until("contextClosed")
        assert 1 < speech.flushes < 30
        assert speech.seconds > 30 * 15 * CHARACTER_S


@pytest.mark.parametrize("closing", [["cancel_context"], ["close_context", "close_context"]])
async def test_an_interrupted_context_stops_and_is_charged_only_for_spoken_text(
    shared_server: SocketServer, closing: list[str]
) -> None:
    text = "A sentence that nobody waits for. " * 400
    billing = shared_server.services.platform.billing
    workspace_id = (await shared_server.books()).workspace_id
    await shared_server.until_empty()
    await billing.wait_for_settlements()  # of earlier tests
    async with inworld(shared_server) as client:
        before = await billing.credit(workspace_id)
        await client.create()
        await client.send_text(text)
        await client.send("flush_context")
        assert "audioChunk" in await client.receive()
        async with asyncio.timeout(PATIENCE_S):
            for name in closing:
                await client.send(name)
            assert (await client.until("contextClosed")).seconds < len(text) * CHARACTER_S / 2
        await billing.wait_for_settlements()
        spent = before - await billing.credit(workspace_id)
        assert 0 < spent < len(text) * 15 / 2
        await client.create("next")
        await client.send("send_text", "next", text="Short.", flush_context={})
        result: dict[str, Any] = {}
        speech = InworldSpeech()
        while "flushCompleted" not in result:
            result = await client.receive()
            assert result["contextId"] == "next"  # no late event of the closed context
            speech.take(result)
        assert speech.seconds == pytest.approx(6 * CHARACTER_S, abs=0.4)


async def test_word_timestamps_start_at_zero_for_each_flush(shared_server: SocketServer) -> None:
    async with inworld(shared_server) as client:
        await client.create(timestampType="WORD")
        seconds = 0.0
        for text in (LETTER, " Then he goes."):
            await client.send("send_text", "c", text=text, flush_context={})
            speech = await client.until("flushCompleted")
            words = speech.words()
            assert [word for word, _, _ in words] == text.split()
            assert sorted(words, key=lambda word: word[1]) == words
            assert 0 <= words[0][1] < 0.5
            # Clients add up the last ends to know where the next flush begins.
            assert words[-1][2] == pytest.approx(speech.seconds, abs=0.02)
            seconds += words[-1][2]
        await client.create("sync", timestampType="WORD", timestampTransportStrategy="SYNC")
        await client.send("send_text", "sync", text=LETTER, flush_context={})
        speech = await client.until("flushCompleted", "sync")
        assert len(speech.words()) == len(LETTER.split())
        assert len(speech.timings) <= len(speech.chunks)


async def test_character_timestamps_cover_the_text_in_order(shared_server: SocketServer) -> None:
    async with inworld(shared_server) as client:
        await client.create(timestampType="CHARACTER")
        await client.send("send_text", "c", text="Good night.", flush_context={})
        rows = [
            timing["characterAlignment"]
            for timing in (await client.until("flushCompleted")).timings
        ]
        letters = [letter for row in rows for letter in row["characters"]]
        starts = [start for row in rows for start in row["characterStartTimeSeconds"]]
        assert "".join(letters) == "Good night. "
        assert starts == sorted(starts)


@pytest.mark.parametrize(("encoding", "headers"), [("LINEAR16", "all"), ("WAV", "first")])
async def test_wav_headers_have_the_44_bytes_that_clients_strip(
    shared_server: SocketServer, encoding: str, headers: str
) -> None:
    async with inworld(shared_server) as client:
        await client.create(audioConfig={"audioEncoding": encoding, "sampleRateHertz": 22_050})
        for _ in range(2):
            await client.send("send_text", "c", text=LETTER, flush_context={})
            chunks = (await client.until("flushCompleted")).chunks
            marked = [chunk[:4] == b"RIFF" and chunk[36:40] == b"data" for chunk in chunks]
            assert len(chunks) > 1 and marked[0]
            assert all(marked) if headers == "all" else not any(marked[1:])
            assert int.from_bytes(chunks[0][24:28], "little") == 22_050


async def test_update_config_applies_after_the_buffered_text_is_spoken(
    shared_server: SocketServer,
) -> None:
    async with inworld(shared_server) as client:
        await client.create()
        await client.send_text("Said as it was.")
        await client.send("update_config", "c", audioConfig={"speakingRate": 0.5})
        result = await client.receive()
        assert result["contextUpdated"]["audioConfig"]["speakingRate"] == 0.5
        assert result["contextUpdated"]["audioConfig"]["sampleRateHertz"] == 16_000
        before = (await client.until("flushCompleted")).seconds
        await client.send("send_text", "c", text="Said as it was.", flush_context={})
        after = (await client.until("flushCompleted")).seconds
        assert after == pytest.approx(2 * before, rel=0.15)
        error = await client.error("update_config", "c", voiceId="Nobody")
        assert (error["code"], error["contextId"]) == (3, "c")


@pytest.mark.in_process
async def test_context_errors_name_the_context_and_never_end_the_session(
    shared_server: SocketServer,
) -> None:
    async with inworld(shared_server) as client:
        for _ in range(30):  # more than the allowed invalid messages
            error = await client.error("send_text", text="")
            assert error["code"] == 3 and "no open context" in error["message"]
        error = await client.error("flush_context", "gone")
        assert (error["code"], error["message"]) == (5, "Context gone not found")
        error = await client.error("create", "c", voiceId="Nobody", modelId="inworld-tts-2")
        # Not the code of a closed context, which clients ignore.
        assert (error["code"], error["contextId"]) == (3, "c")
        await client.create()
        error = await client.error("create", "c", voiceId=client.voice_id)
        assert error["code"] == 6
        await client.send_text("x" * 50_000)
        error = await client.error("send_text", "c", text="y")
        assert "exceeded" in error["message"] and error["contextId"] == "c"


async def test_an_empty_context_is_closed_to_create_a_sixth(shared_server: SocketServer) -> None:
    async with inworld(shared_server) as client:
        for name in "abcde":
            await client.create(name)
        for name in "bcde":
            await client.send_text("Something to say", name)
        await client.send("create", "f", voiceId=client.voice_id)
        events = [await client.receive(), await client.receive()]
        closed = next(event for event in events if "contextClosed" in event)
        created = next(event for event in events if "contextCreated" in event)
        assert (closed["contextId"], created["contextId"]) == ("a", "f")
        error = await client.error("flush_context", "a")
        assert (error["code"], error["contextId"]) == (5, "a")
        await client.send_text("More to say", "f")
        error = await client.error("create", "g", voiceId=client.voice_id)
        assert (error["code"], error["contextId"]) == (8, "g")


async def test_automatic_flushes_wait_for_the_end_of_a_document(
    shared_server: SocketServer,
) -> None:
    async with inworld(shared_server) as client:
        await client.create(autoMode=True, timestampType="WORD", maxBufferDelayMs=50)
        await client.send_text("Before. ")
        await client.until("flushCompleted")
        await client.send_text("<speak>One sentence. <mark name='m'/>")
        await asyncio.sleep(0.2)
        await client.send_text("Another.<break time='2s'/></speak> After.")
        speech = await client.until("flushCompleted")
        assert speech.seconds > 2
        await client.send("close_context")
        rest = await client.until("contextClosed")
        assert 0 < rest.seconds < 2
