"""Deepgram's own client, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
import wave
from typing import Any

from deepgram import AsyncDeepgramClient, DeepgramClient, DeepgramClientEnvironment
from deepgram.core import ApiError
from deepgram.listen.v1.types import ListenV1Configure, ListenV1Metadata, ListenV1Results
from deepgram.speak.v1.types import SpeakV1Text
from deepgram.speak.v2.types import SpeakV2Configure, SpeakV2Speak
from deepgram.types import ListenV1Response

SENTENCE = "A sentence for the room."


def environment(url: str) -> Any:
    socket = url.replace("http", "ws", 1)
    return DeepgramClientEnvironment(base=url, production=socket, agent=socket, agent_rest=url)


def blocking(url: str, key: str, path: str) -> dict[str, Any]:
    client = DeepgramClient(api_key=key, environment=environment(url))
    with open(path, "rb") as file:
        data = file.read()
    heard = client.listen.v1.media.transcribe_file(
        request=data, model="nova-3", smart_format=True, utterances=True, diarize=True
    )
    best = heard.results.channels[0].alternatives[0]
    seen: dict[str, Any] = {
        "text": best.transcript,
        "words": [[one.word, one.speaker] for one in best.words],
        "paragraphs": best.paragraphs.paragraphs[0].num_words,
        "utterance": heard.results.utterances[0].transcript,
        "duration": heard.metadata.duration,
        "models": len(heard.metadata.models),
    }
    found = client.listen.v1.media.transcribe_file(
        request=data,
        model="nova-3",
        search=["brown fox", "zebra"],
        replace=["quick:slow", "the"],
        detect_entities=True,
    )
    (channel,) = ListenV1Response.model_validate(found.dict(), strict=True).results.channels
    seen["found"] = [[term.query, len(term.hits)] for term in channel.search]
    seen["replaced"] = channel.alternatives[0].transcript
    seen["entities"] = channel.alternatives[0].entities
    try:
        client.listen.v1.media.transcribe_file(request=data, callback="https://localhost/hook")
    except ApiError as error:
        seen["callback refused"] = error.body["err_msg"]
    accepted = client.listen.v1.media.transcribe_file(
        request=data, callback="https://ann:secret@example.com/hook", callback_method="PUT"
    )
    seen["accepted"] = len(accepted.request_id)
    with_spoken = client.speak.v1.audio.generate(
        text=SENTENCE,
        model="aura-2-thalia-en",
        encoding="linear16",
        container="none",
        sample_rate=16_000,
    )
    seen["spoken"] = sum(map(len, with_spoken)) / 32_000
    listed = client.manage.v1.models.list()
    seen["models listed"] = [len(listed.stt), len(listed.tts) > 0]
    seen["project"] = client.manage.v1.projects.list().projects[0].name
    granted = client.auth.v1.tokens.grant(ttl_seconds=30)
    seen["granted"] = granted.expires_in
    short = DeepgramClient(access_token=granted.access_token, environment=environment(url))
    seen["by the token"] = (
        short.listen.v1.media.transcribe_file(request=data, model="nova-3")
        .results.channels[0]
        .alternatives[0]
        .transcript
    )
    try:
        client.read.v1.text.analyze(request={"text": SENTENCE}, language="en", summarize="v2")
    except ApiError as error:
        seen["not supported"] = [error.status_code, error.body["err_code"]]
    try:
        client.listen.v1.media.transcribe_url(url="http://127.0.0.1/a.wav", model="nova-3")
    except ApiError as error:
        seen["refused"] = [error.status_code, error.body["err_code"]]
    return seen


async def stream(url: str, key: str, path: str) -> dict[str, Any]:
    client = AsyncDeepgramClient(api_key=key, environment=environment(url))
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    options = {"model": "nova-3", "encoding": "linear16", "sample_rate": str(rate)}
    results: list[Any] = []
    async with client.listen.v1.connect(**options, punctuate="true") as connection:
        await connection.send_media(data + bytes(2 * rate))
        await connection.send_finalize()
        await connection.send_keep_alive()
        await connection.send_configure(ListenV1Configure(keyterms=["Antiphon"]))
        await connection.send_close_stream()
        async for message in connection:
            results.append(message)
    finals = [one for one in results if isinstance(one, ListenV1Results)]
    metadata = [one for one in results if isinstance(one, ListenV1Metadata)]
    best = [one.channel.alternatives[0] for one in finals]
    in_a_container = []
    async with client.listen.v1.connect(model="nova-3") as connection:
        with open(path, "rb") as whole:
            await connection.send_media(whole.read())
        await connection.send_close_stream()
        async for message in connection:
            if isinstance(message, ListenV1Results):
                in_a_container.append(message.channel.alternatives[0].transcript)
    return {
        "in a container": in_a_container,
        "texts": [one.transcript for one in best if one.transcript],
        "punctuated": best[0].words[0].punctuated_word,
        "finalized": [one.from_finalize for one in finals],
        "duration": [one.duration for one in metadata],
        "kinds": sorted({one.type for one in results}),
    }


async def say(connection: Any, data: bytes, rate: int) -> None:
    """Four times as fast as it sounds."""
    for at in range(0, len(data), rate // 5):
        await connection.send_media(data[at : at + rate // 5])
        await asyncio.sleep(0.025)


async def turns(url: str, key: str, path: str) -> list[list[str]]:
    client = AsyncDeepgramClient(api_key=key, environment=environment(url))
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    options = {"model": "flux-general-en", "encoding": "linear16", "sample_rate": str(rate)}
    seen = []
    async with client.listen.v2.connect(**options, eager_eot_threshold="0.5") as connection:
        sending = asyncio.create_task(say(connection, data + bytes(12 * rate), rate))
        async for message in connection:
            event = getattr(message, "event", "") or ""
            seen.append([message.type, event, getattr(message, "transcript", "")])
            if event == "EndOfTurn":
                break
        sending.cancel()
    return seen


async def speak(url: str, key: str) -> dict[str, Any]:
    client = AsyncDeepgramClient(api_key=key, environment=environment(url))
    audio, kinds = 0, []
    options = {"model": "aura-2-thalia-en", "encoding": "linear16", "sample_rate": "16000"}
    async with client.speak.v1.connect(**options) as connection:
        await connection.send_text(SpeakV1Text(text=SENTENCE))
        await connection.send_flush()
        async for message in connection:
            if isinstance(message, bytes):
                audio += len(message)
                continue
            kinds.append(message.type)
            if message.type == "Flushed":
                await connection.send_close()
    return {"seconds": audio / 32_000, "kinds": kinds}


async def speak_turns(url: str, key: str) -> dict[str, Any]:
    client = AsyncDeepgramClient(api_key=key, environment=environment(url))
    audio, kinds = 0, []
    async with client.speak.v2.connect(model="flux-alexis-en") as connection:
        await connection.send_configure(SpeakV2Configure(speed=1.0))
        await connection.send_speak(SpeakV2Speak(text=SENTENCE))
        await connection.send_flush()
        await connection.send_close()
        async for message in connection:
            if isinstance(message, bytes):
                audio += len(message)
                continue
            type(message).model_validate(message.model_dump(), strict=True)
            kinds.append(type(message).__name__)
            if message.type == "SpeechMetadata":
                counted = message.audio_duration_ms / 1000
    async with client.speak.v2.connect(model="flux-alexis-en") as connection:
        await connection.send_speak(SpeakV2Speak(text=f"{SENTENCE} " * 100))
        is_heard = False
        async for message in connection:
            if isinstance(message, bytes):
                if not is_heard:  # later audio may arrive after the close
                    await connection.send_interrupt()
                    await connection.send_close()
                is_heard = True
            elif message.type == "SpeechInterrupted":
                heard = [message.text_spoken, message.audio_played_ms > 0]
    whole = b"".join([part async for part in client.speak.v2.audio.generate(
        model="flux-alexis-en", text=SENTENCE, encoding="linear16", container="none"
    )])  # fmt: skip
    return {
        "seconds": [audio / 48_000, counted, len(whole) / 48_000],
        "kinds": kinds,
        "interrupted": heard,
    }


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    return {
        **await asyncio.to_thread(blocking, url, key, path),
        "stream": await stream(url, key, path),
        "turns": await turns(url, key, path),
        "speech": await speak(url, key),
        "spoken turns": await speak_turns(url, key),
    }


sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
