"""Attacks by the work that a request asks of models: speech, audio files, corrections, voices."""

import asyncio
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import FormData

from benchmarks.hostile.attacker import Attacker, attack
from benchmarks.hostile.audio import flac_of_tiny_blocks, opus_of_short_packets, repeated
from benchmarks.hostile.bystander import Bystander

DIGITS = "777777777777777 " * 312  # 5,000 characters, of which 60,000 are spoken
LINES = "a\n" * 2500
SENTENCE = "The train to the coast leaves at nine, so be there early. "
LONG_TEXT = (SENTENCE * 90)[:5000]


@attack()
async def equal_neighbours(attacker: Attacker) -> None:
    """No attack: two clients that behave as well. What it costs to share the machine fairly."""
    clip = await asyncio.to_thread(Path(attacker.target.clip).read_bytes)

    async def live(_: int) -> None:
        key = await attacker.account("enterprise")
        seen = await Bystander(attacker.target, key, clip).run(20)
        attacker.outcomes.update(seen.refused)
        attacker.outcomes["rounds"] += len(seen.took["plans"])

    await attacker.many(2, live)


@attack("C2")
async def spoken_digits(attacker: Attacker) -> None:
    """5,000 characters of digits at speed 0.5, two hours of speech, from 4 accounts."""
    keys = [await attacker.account() for _ in range(4)]

    async def speak(number: int) -> None:
        body = {"text": DIGITS, "speed": 0.5}
        await attacker.post("/tts-synthesize", keys[number], json=body)

    await attacker.many(4, speak)


@attack("C2")
async def short_lines(attacker: Attacker) -> None:
    """2,500 lines of one letter at speed 0.5, an hour of pauses, on every route of speech."""
    keys = [await attacker.account() for _ in range(4)]
    routes = cycle(("/tts-synthesize", "/tts-stream", "/tts/v1/voice", "/openai/v1/audio/speech"))

    async def speak(number: int) -> None:
        named = {"input": LINES} if "openai" in (path := next(routes)) else {"text": LINES}
        body = {**named, "speed": 0.5, "voiceId": attacker.target.voice_id}
        await attacker.post(path, keys[number], json=body)

    await attacker.many(4, speak)


@attack("C2")
async def long_uncompressed_answers(attacker: Attacker) -> None:
    """5,000 characters as WAV and LINEAR16 at 48 kHz, half with Idempotency-Keys, 32 at once."""
    key = await attacker.account("enterprise")

    async def speak(number: int) -> None:
        audio = {"audioEncoding": "LINEAR16", "sampleRateHertz": 48_000, "speakingRate": 0.5}
        body: dict[str, Any] = {"text": LONG_TEXT, "speed": 0.5, "output_format": "wav"}
        path = ("/tts-synthesize", "/tts/v1/voice")[number % 2]
        if number % 2:
            body |= {"voiceId": attacker.target.voice_id, "audioConfig": audio}
        headers = {"Idempotency-Key": uuid4().hex} if number % 4 < 2 else {}
        await attacker.post(path, key, json=body, headers=headers)

    await attacker.many(32, speak)


@attack("M4")
async def hang_ups(attacker: Attacker) -> None:
    """Speech, transcripts and chats that are left shortly before their whole answer, 16 at once."""
    key = await attacker.account("enterprise")
    audio = await asyncio.to_thread(repeated, Path(attacker.target.clip), 120.0)

    async def leave(number: int) -> None:
        if number % 3 == 0:
            asking = attacker.post("/tts-synthesize", key, json={"text": LONG_TEXT})
        elif number % 3 == 1:
            form = FormData()
            form.add_field("audio", audio, filename="a.wav")
            asking = attacker.post("/stt", key, data=form)
        else:
            messages = [{"role": "user", "content": SENTENCE * 60}]
            body = {"messages": messages, "stream": False, "save_chat": False}
            asking = attacker.post("/v1/chat/completions", key, json=body)
        try:
            async with asyncio.timeout(2):
                await asking
        except TimeoutError:
            attacker.outcomes["left"] += 1

    await attacker.many(16, leave)


@attack("C2")
async def long_texts(attacker: Attacker) -> None:
    """5,000 characters at speed 0.5, ten minutes of speech, 32 at once of one account."""
    key = await attacker.account("enterprise")

    async def speak(_: int) -> None:
        await attacker.post("/tts-synthesize", key, json={"text": LONG_TEXT, "speed": 0.5})

    await attacker.many(32, speak)


@attack("M5")
async def inworld_flood(attacker: Attacker) -> None:
    """64 texts at once on Inworld's routes, whole and streamed, of one account."""
    key = await attacker.account("enterprise")

    async def speak(number: int) -> None:
        body = {
            "text": LONG_TEXT[:2000],
            "voiceId": attacker.target.voice_id,
            "audioConfig": {"audioEncoding": "LINEAR16", "sampleRateHertz": 48_000},
        }
        path = ("/tts/v1/voice", "/tts/v1/voice:stream")[number % 2]
        await attacker.post(path, key, json=body)

    await attacker.many(64, speak)


@attack("H4")
async def flacs_of_tiny_blocks(attacker: Attacker) -> None:
    """FLAC files of 16-sample blocks, which cost seconds of CPU a MiB to decode, 3 at once."""
    await _upload(attacker, await asyncio.to_thread(flac_of_tiny_blocks, 2 << 20), 3)


@attack("H4")
async def opus_of_short_frames(attacker: Attacker) -> None:
    """Ten minutes of Opus in packets of 2.5 ms, 3 at once."""
    await _upload(attacker, await asyncio.to_thread(opus_of_short_packets, 590.0), 3)


@attack("H4")
async def long_recordings(attacker: Attacker) -> None:
    """Eight minutes of speech to /stt with words and speakers, 12 at once of one account."""
    key = await attacker.account("enterprise")
    audio = await asyncio.to_thread(repeated, Path(attacker.target.clip), 500.0)  # under 25 MB

    async def upload(_: int) -> None:
        form = FormData()
        form.add_field("timestamps", "true")
        form.add_field("speaker_labels", "true")
        form.add_field("audio", audio, filename="a.wav")
        await attacker.post("/stt", key, data=form)

    await attacker.many(12, upload)


async def _upload(attacker: Attacker, audio: bytes, count: int) -> None:
    key = await attacker.account("enterprise")
    paths = cycle(("/stt", "/audio/verify", "/openai/v1/audio/transcriptions"))

    async def upload(_: int) -> None:
        path = next(paths)
        form = FormData()
        form.add_field("model", "general" if path == "/stt" else "whisper-1")
        form.add_field("file" if "openai" in path else "audio", BytesIO(audio), filename="a")
        await attacker.post(path, key, data=form)

    await attacker.many(count, upload)


@attack("M1")
async def correction_flood(attacker: Attacker) -> None:
    """Corrections of 20,000 characters inside a code block, all saved in one chat."""
    key = await attacker.account("enterprise")
    body = {"text": "```\n" + "x" * 19_990 + "\n```", "stream": False}
    first = await attacker.post("/v1/chat/completions", key, json=body)
    chat = first.json["chat_id"] if first.status == 200 else None

    async def correct(number: int) -> None:
        if number or chat is None:
            await attacker.post("/v1/chat/completions", key, json={**body, "chat_id": chat})
        else:
            await attacker.request("GET", f"/chats/{chat}", key)

    await attacker.many(8, correct)


@attack("M1")
async def correction_of_lines(attacker: Attacker) -> None:
    """Corrections by rules, which are free, of as many short lines as cost the rules most."""
    key = await attacker.account("enterprise")
    body = {"text": "he go\n" * 1000, "model": "svc/rules-en", "stream": False, "save_chat": False}

    async def correct(_: int) -> None:
        await attacker.post("/v1/chat/completions", key, json=body)

    await attacker.many(8, correct)


@attack("M1")
async def long_chats(attacker: Attacker) -> None:
    """Chats whose messages fill the context window, 16 at once, each cancelled late."""
    key = await attacker.account("enterprise")
    messages = [{"role": "user", "content": SENTENCE * 60}]
    body = {"messages": messages, "max_tokens": 400, "stream": False, "save_chat": False}

    async def chat(_: int) -> None:
        try:
            async with asyncio.timeout(8):
                await attacker.post("/v1/chat/completions", key, json=body)
        except TimeoutError:
            attacker.outcomes["left"] += 1

    await attacker.many(16, chat)


@attack("M6")
async def voices_deleted_in_use(attacker: Attacker) -> None:
    """Voices that are created and deleted again and again, while texts are spoken with them."""
    keys = [await attacker.account("enterprise") for _ in range(2)]
    sample = await asyncio.to_thread(repeated, Path(attacker.target.clip), 45.0)

    async def churn(number: int) -> None:
        key = keys[number % 2]
        form = FormData()
        form.add_field("name", "a")
        for at in range(3):
            form.add_field("files", sample, filename=f"{at}.wav")
        made = await attacker.post("/voices", key, data=form)
        if made.status != 201:
            await asyncio.sleep(1)
            return
        voice = made.json["id"]
        speaking = {"text": LONG_TEXT, "voice_id": voice}
        await asyncio.gather(
            attacker.post("/tts-stream", key, json=speaking),
            attacker.request("DELETE", f"/voices/{voice}", key),
        )

    await attacker.many(2, churn)
