"""What a stop of the service cuts is charged for what its client was sent, on every route and
socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from api.deepgram.streams import FluxConversation, StreamConversation
from configs.load import load_yaml
from configs.schema.voices import VoicesConfig
from deployments.gateway import listener
from models.registry import CHAT, STT, TTS, load_model
from models.stt.options import RecognitionOptions
from pipelines.stt.file import HeardText
from pipelines.tts import session as speech_session
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.shaping import SNIPPET_S
from tests.api import local_services
from tests.api.leaving.conftest import LeavingSite, counted_engine
from tests.api.leaving.stopped import (
    LIVE,
    RATE,
    QuickStop,
    StoppableChat,
    StoppableSTT,
    StoppableTTS,
    StoppedSite,
    words,
)
from tests.api.leaving.work import (
    REQUESTS,
    SOCKETS,
    TEXT,
    Begin,
    Work,
    messages,
    pcm,
    speech_file,
)
from tests.api.local_server import local_settings
from tests.api.money import Books
from tests.api.replaced import with_listening
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import serve
from tests.engines import ECHO, SCRIPTED, TONE, tone
from tests.engines.counted import CountedEcho, CountedScripted, CountedTone, Steps
from tests.engines.echo import _WORD
from tests.local_ports import LocalTTSModel
from tests.models.speaker.bands import BandsEngine
from tests.patience import PATIENCE_S, until

DRAIN_S, LISTENS_S = 3.0, 0.5
# Of speech: what loudness control holds back in place of a pause between sentences, and the end of
# a sentence, which comes by itself or with the next one, as the engine is slow or fast.
HELD_S = 0.03 + SNIPPET_S

# Sentences of many lengths.
SPOKEN = " ".join(
    f"The {'very ' * (number % 7)}old harbour lay still, and {number} ships came in sight."
    for number in range(28)
)
SHORT_SENTENCES = " ".join(f"Number {number} is here." for number in range(500))
PCM_16 = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}


def cartesia(**fields: Any) -> Work:
    return replace(
        REQUESTS["/cartesia/tts/bytes"],
        json={**REQUESTS["/cartesia/tts/bytes"].json, "output_format": PCM_16, **fields},
    )


def speech(**fields: Any) -> Work:
    return Work("tts", fields, is_streamed=True)


OPENAI = {"model": "tts-1", "input": SPOKEN, "voice": "{voice}", "response_format": "pcm"}
INWORLD_AUDIO = {"audioEncoding": "PCM", "sampleRateHertz": RATE}
SPEECH_REQUESTS = {
    "/tts-stream": speech(text=SPOKEN, voice_id="{voice}", output_format="pcm"),
    "/openai/v1/audio/speech": speech(**OPENAI),
    "/openai/v1/audio/speech#events": speech(**OPENAI, stream_format="sse"),
    "/tts/v1/voice:stream": speech(text=SPOKEN, voiceId="{voice}", audioConfig=INWORLD_AUDIO),
    **{
        f"/{version}/speak?model={{voice_id}}&encoding=linear16&container=none"
        f"&sample_rate={RATE}": speech(text=SPOKEN)
        for version in ("v1", "v2")
    },
    f"/v1/text-to-speech/{{voice_id}}?output_format=pcm_{RATE}": speech(text=SPOKEN),
    f"/v1/text-to-speech/{{voice_id}}/stream?output_format=pcm_{RATE}": speech(text=SPOKEN),
    f"/v1/text-to-speech/{{voice_id}}/stream/with-timestamps?output_format=pcm_{RATE}": speech(
        text=SPOKEN
    ),
    **{
        f"/v1/text-to-dialogue{kind}?output_format=pcm_{RATE}": speech(
            inputs=[{"text": SPOKEN, "voice_id": "{voice}"}]
        )
        for kind in ("", "/stream", "/stream/with-timestamps")
    },
    "/cartesia/tts/bytes": cartesia(transcript=SPOKEN),
    "/cartesia/tts/sse": cartesia(transcript=SPOKEN),
}
CREATE = {
    "voice_id": "{voice}",
    "audio_config": {"audio_encoding": "LINEAR16", "sample_rate_hertz": RATE},
}
SPEECH_SOCKETS: dict[str, Begin] = {
    "/ws/tts": messages(
        {"create_context": CREATE}, {"send_text": {"text": SPOKEN}}, {"flush_context": {}}
    ),
    "/tts/v1/voice:streamBidirectional": messages(
        {"create": {"voiceId": "{voice}", "audioConfig": INWORLD_AUDIO}, "contextId": "c"},
        {"send_text": {"text": SPOKEN, "flush_context": {}}, "contextId": "c"},
    ),
    "/cartesia/tts/websocket": messages(
        {**cartesia(transcript=SPOKEN).json, "context_id": "c"},
    ),
    **{
        f"/{version}/speak?model={{voice}}&encoding=linear16&sample_rate={RATE}": messages(
            {"type": "Speak", "text": SPOKEN}, {"type": "Flush"}
        )
        for version in ("v1", "v2")
    },
    f"/v1/text-to-speech/{{voice}}/stream-input?output_format=pcm_{RATE}": messages(
        {"text": " "}, {"text": f"{SPOKEN} ", "flush": True}
    ),
    f"/v1/text-to-dialogue/multi-stream-input?output_format=pcm_{RATE}": messages(
        {"voices": ["{voice}"], "context_id": "c"},
        {
            "inputs": [{"text": f"{SPOKEN} ", "voice_id": "{voice}"}],
            "context_id": "c",
            "flush": True,
        },
    ),
    f"/v1/text-to-speech/{{voice}}/multi-stream-input?output_format=pcm_{RATE}": messages(
        {"text": " ", "context_id": "c"},
        {"text": f"{SPOKEN} ", "context_id": "c", "flush": True},
    ),
}
CHATS = [
    path
    for path, work in REQUESTS.items()
    if work.is_streamed and work.service == "chat" and "#spoken" not in path  # also charged as tts
]
FILES = [path for path, work in REQUESTS.items() if work.is_streamed and work.service == "stt"]
EXPLAIN = "/tts/explain"  # which is free
# Seconds of audio that each socket sends: two sentences, and the pause between them.
SENTENCES_S, PAUSE_S = (8.0, 19.0), 3.0
SENT_S = (PAUSE_S, SENTENCES_S[0] + PAUSE_S, sum(SENTENCES_S) + PAUSE_S)  # by sentences with a text
ROUNDED_S = 0.5  # of frames, and of the silence that belongs to a sentence
HEARD = "the quick brown fox"  # in each sentence, by the scripted engine
FINAL = {"EndOfTurn", "committed_transcript", "turn.end"}  # kinds of messages
MOST_WORDS = 700  # of an answer that was cut
WHOLE = [path for path, work in REQUESTS.items() if not (work.is_streamed or path == EXPLAIN)]


@pytest.fixture
async def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoppedSite]:
    """A gateway that drains for DRAIN_S."""
    monkeypatch.setattr(listener, "DRAIN_S", DRAIN_S)
    steps = Steps()
    stop = QuickStop(steps)

    def stoppable(port: Any) -> Any:
        port.stop = stop
        return port

    transcriber = stoppable(
        StoppableSTT(*counted_engine(STT, SCRIPTED, CountedScripted, steps), BandsEngine())
    )
    speaker = StoppableTTS(*counted_engine(TTS, TONE, CountedTone, steps))
    echo = StoppableChat(*counted_engine(CHAT, ECHO, CountedEcho, steps))
    services = local_services.local_services(
        local_settings(tmp_path),
        speakers={"tone": stoppable(speaker)},
        chat_models={"echo": stoppable(echo)},
        transcriber=transcriber,
    )
    services = with_listening(services, transcriber)
    sockets = services.infrastructure.sockets
    sockets.limits = sockets.limits.model_copy(update={"drain_s": DRAIN_S, "stop_s": LISTENS_S})
    async with serve(services) as server:
        site = LeavingSite(server, Books(services, 1), steps)
        yield StoppedSite(server, stop, steps, site)


@pytest.fixture
async def working(stopped: StoppedSite) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The requests and sockets of a test."""
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()


async def sentences(voice_id: str, text: str = SPOKEN) -> list[tuple[float, int]]:
    """The end of each sentence in seconds of the speech, and what is charged up to it."""
    model = LocalTTSModel(*load_model(TTS, TONE, local_services._no_weights()))
    pipeline = SpeechPipeline({"tone": model}, load_yaml(VoicesConfig, "voices"))
    plan = await pipeline.plan(SpeechRequest(text, voice_id=voice_id), early_start=True)
    ends: dict[int, float] = {}
    async for chunk in pipeline.stream(plan):
        charged = max(chunk.text_end, 1)
        ends[charged] = max(ends.values(), default=0.0) + chunk.audio.duration_s
    return [(end_s, charged) for charged, end_s in ends.items()]


def due(ends: list[tuple[float, int]], speech_s: float) -> int:
    """The characters of all sentences of which the client has any speech."""
    begins = [0.0, *(end_s for end_s, _ in ends)]
    return max(
        (
            charged
            for begin_s, (_, charged) in zip(begins, ends, strict=False)
            if speech_s > begin_s + HELD_S
        ),
        default=0,
    )


async def test_every_stream_and_socket_is_stopped() -> None:
    streams = [path for path, work in REQUESTS.items() if work.is_streamed]
    tested = [*SPEECH_REQUESTS, *CHATS, *FILES]
    assert {plain(path) for path in tested} == {plain(path) for path in streams}
    sockets = {path for path, (_, _, service) in SOCKETS.items() if service != "chat"}
    assert {plain(path) for path in [*SPEECH_SOCKETS, *LIVE]} == sockets


def plain(path: str) -> str:
    """As the route has it."""
    return path.partition("#")[0].partition("?")[0].replace("{voice}", "{voice_id}")


@pytest.mark.parametrize("made", [200, 500])
async def test_cut_speech_costs_the_sentences_that_were_sent(
    stopped: StoppedSite, working: list[asyncio.Task[None]], made: int
) -> None:
    ends = await sentences(stopped.server.voice_id)
    for path, work in SPEECH_REQUESTS.items():
        working.append(asyncio.create_task(stopped.request(path, work)))
    for path, begin in SPEECH_SOCKETS.items():
        working.append(asyncio.create_task(stopped.session(path, begin)))
    await until(lambda: len(stopped.clients) == len(working))
    await until(lambda: stopped.steps.made > made)
    await stopped.until_each(lambda client: due(ends, client.speech_s) > 0)
    charged = await stopped.end()
    await asyncio.gather(*working)
    assert len(stopped.clients) == len(SPEECH_REQUESTS) + len(SPEECH_SOCKETS)
    for client in stopped.clients:
        assert client.status in (101, 200), client.path
        expected = due(ends, client.speech_s)
        assert 0 < expected < len(SPOKEN), client.path
        assert charged[client.key_id] == {"tts": expected}, (client.path, client.speech_s, ends)


async def test_a_socket_that_is_read_slowly_costs_what_was_queued(
    stopped: StoppedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tone, "CHUNK_S", 60.0)  # each sentence is one message
    monkeypatch.setattr(speech_session, "MESSAGE_S", 60.0)
    sockets = stopped.server.services.infrastructure.sockets
    sockets.limits = sockets.limits.model_copy(update={"outbox_bytes": 20_000})
    ends = await sentences(stopped.server.voice_id, SHORT_SENTENCES)
    key, client = await stopped.client("/ws/tts")
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        host, _, port = stopped.server.address.partition(":")
        await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
        address = f"ws://{stopped.server.address}/ws/tts?apiKey={key}"
        async with connect(address, sock=raw, max_queue=1, max_size=None) as reader:
            text = {"send_text": {"text": SHORT_SENTENCES}}
            begin = messages({"create_context": CREATE}, text, {"flush_context": {}})
            await begin(reader, stopped.server.voice_id)
            made = -1
            while made < stopped.steps.made or not made:  # until nothing more fits
                made = stopped.steps.made
                await asyncio.sleep(1.0)
            ending = asyncio.create_task(stopped.end())
            await until(lambda: all(one.close_code == 1001 for one in sockets.live))
            with suppress(ConnectionClosed):
                while True:
                    client.received.append(await reader.recv())
    expected = due(ends, client.speech_s)
    assert 0 < expected < len(SHORT_SENTENCES)
    assert (await ending)[client.key_id] == {"tts": expected}


async def test_an_upload_that_a_stop_cuts_is_refused_and_free(stopped: StoppedSite) -> None:
    work = REQUESTS["/stt"]
    data = stopped.site.request("/stt", work)
    client = await stopped.site.send(data[:-10])
    head = asyncio.create_task(client.read_some())
    await asyncio.sleep(0.5)
    assert await stopped.end() == {}
    answer = (await head).decode()
    assert answer.startswith("HTTP/1.1 503 "), answer
    client.close()


def final_sentences(message: dict[str, Any]) -> int:
    """Those of which it has the last text, in any dialect."""
    kinds = (message.get("event"), message.get("message_type"), message.get("type"))
    if not (message.get("is_final") or message.get("end_of_turn") or FINAL.intersection(kinds)):
        return 0
    if "channel" in message:
        (message,) = message["channel"]["alternatives"]
    text = message.get("text") or message.get("transcript") or ""
    return text.count(HEARD)


async def test_cut_answers_and_transcripts_cost_what_was_sent(
    stopped: StoppedSite,
    working: list[asyncio.Task[None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = map(pcm, SENTENCES_S)
    spoken = first + bytes(round(PAUSE_S * 16_000) * 2) + second
    monkeypatch.setattr("tests.api.leaving.work.pcm", lambda _: spoken)
    for deepgram in (StreamConversation, FluxConversation):  # their clients are silent on purpose
        monkeypatch.setattr(deepgram, "silence", (10 * PATIENCE_S, "", 1011))
    path = tmp_path / "talk.wav"
    path.write_bytes(speech_file())
    pipeline = stopped.server.services.speech.transcription.pipeline
    heard = pipeline.stream(await pipeline.open(path, RecognitionOptions()))
    ends_ms = [round(item.end_s * 1000) async for item in heard if isinstance(item, HeardText)]
    stopped.steps.made, stopped.steps.slowness = 0, 5.0

    for path_of_work in FILES + CHATS:
        work = REQUESTS[path_of_work]
        working.append(asyncio.create_task(stopped.request(path_of_work, work)))
    for path_of_work, begin in LIVE.items():
        working.append(asyncio.create_task(stopped.session(path_of_work, begin)))
    count = len(FILES + CHATS) + len(LIVE)
    await until(lambda: len(stopped.clients) == count)
    await stopped.until_each(lambda client: bool(client.received))
    charged = await stopped.end()
    await asyncio.gather(*working)
    prompt = len(_WORD.findall(TEXT[:4000]))
    for client in stopped.clients:
        if client.path in LIVE:
            finals = sum(map(final_sentences, client.messages))
            charged_s = charged[client.key_id]["stt"] / 1000
            assert abs(charged_s - SENT_S[finals]) < ROUNDED_S, (client.path, finals, charged_s)
            continue
        elif client.path in FILES:
            texts = [one for one in client.messages if one["type"] == "transcript.text.delta"]
            expected = {"stt": ends_ms[len(texts) - 1]}
            assert 0 < len(texts) < len(ends_ms)
        else:
            received = sum(map(words, client.messages))
            expected = {"chat": prompt + received}
            assert 0 < received < MOST_WORDS, client.path
        assert charged[client.key_id] == expected, client.path


async def test_answers_that_are_sent_whole_cost_nothing_when_they_are_cut(
    stopped: StoppedSite, working: list[asyncio.Task[None]]
) -> None:
    stopped.steps.slowness = 100.0
    for path in WHOLE:
        working.append(asyncio.create_task(stopped.request(path, REQUESTS[path])))
    await until(lambda: len(stopped.clients) == len(WHOLE))
    await until(lambda: stopped.steps.made > 300)
    charged = await stopped.end()
    await asyncio.gather(*working)
    refused = 0
    for client in stopped.clients:
        if client.status == 200 and client.key_id in charged:
            continue  # it was answered before the stop, as a short text may be at once
        is_refused = client.path.startswith("/mcp") or client.status == 503
        assert is_refused and client.key_id not in charged, (client.path, client.received)
        refused += 1
    assert refused >= len(WHOLE) - 2
