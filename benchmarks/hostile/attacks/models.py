"""Attacks by the work that a request asks of models: speech, audio files, corrections, voices."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import FormData

from benchmarks.hostile.attacker import Attacker, attack, looped_attack
from benchmarks.hostile.audio import flac_of_tiny_blocks, opus_of_short_packets, repeated
from benchmarks.hostile.bystander import Bystander

DIGITS = "777777777777777 " * 312  # 5,000 characters, spoken as 60,000
LINES = "a\n" * 2500
SENTENCE = "The train to the coast leaves at nine, so be there early. "
LONG_TEXT = (SENTENCE * 90)[:5000]
SPEECH = ("/tts-synthesize", "/tts-stream", "/tts/v1/voice", "/openai/v1/audio/speech")
UPLOADS = ("/stt", "/audio/verify", "/openai/v1/audio/transcriptions")
UNSAVED = {"stream": False, "save_chat": False}
LONG_CHAT = {"messages": [{"role": "user", "content": SENTENCE * 60}], **UNSAVED}
CORRECTION = {"text": "```\n" + "x" * 19_990 + "\n```", "stream": False}
FREE_CORRECTION = {"text": "he go\n" * 1000, "model": "svc/rules-en", **UNSAVED}
LINEAR16 = {"audioEncoding": "LINEAR16", "sampleRateHertz": 48_000}
recording = cache(repeated)
tiny_blocks = cache(flac_of_tiny_blocks)
short_packets = cache(opus_of_short_packets)


async def clip(attacker: Attacker, seconds: float) -> bytes:
    """The recorded sentence, again and again for that long."""
    return await asyncio.to_thread(recording, Path(attacker.target.clip), seconds)


async def upload(attacker: Attacker, path: str, key: str, audio: bytes, **fields: str) -> None:
    form = FormData()
    for name, value in fields.items():
        form.add_field(name, value)
    form.add_field("file" if "openai" in path else "audio", audio, filename="a.wav")
    await attacker.post(path, key, data=form)


async def leave_after(attacker: Attacker, seconds: float, asking: Awaitable[object]) -> None:
    """Hang up before the answer, if it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            await asking
    except TimeoutError:
        attacker.outcomes["left"] += 1


@attack()
async def equal_neighbours(attacker: Attacker) -> None:
    """No attack: two more well-behaved clients. Shows the cost of sharing the machine fairly."""
    audio = await asyncio.to_thread(Path(attacker.target.clip).read_bytes)

    async def live(_: int) -> None:
        key = await attacker.account("enterprise")
        latencies = await Bystander(attacker.target, key, audio).run(20)
        attacker.outcomes.update(latencies.refused)
        attacker.outcomes["rounds"] += len(latencies.took["plans"])

    await attacker.many(2, live)


@looped_attack(loops=4, accounts=4)
async def spoken_digits(attacker: Attacker, number: int) -> None:
    """5,000 characters of digits at speed 0.5, two hours of speech, from 4 accounts."""
    body = {"text": DIGITS, "speed": 0.5}
    await attacker.post("/tts-synthesize", attacker.key(number), json=body)


@looped_attack(loops=4, accounts=4)
async def short_lines(attacker: Attacker, number: int) -> None:
    """2,500 lines of one letter at speed 0.5, an hour of pauses, on every route of speech."""
    path = SPEECH[attacker.outcomes.total() % len(SPEECH)]
    field = "input" if "openai" in path else "text"
    body = {field: LINES, "speed": 0.5, "voiceId": attacker.target.voice_id}
    await attacker.post(path, attacker.key(number), json=body)


@looped_attack(loops=32, accounts=1, plan="enterprise")
async def long_uncompressed_answers(attacker: Attacker, number: int) -> None:
    """5,000 characters as WAV and LINEAR16 at 48 kHz, half with Idempotency-Keys, 32 at once."""
    path = ("/tts-synthesize", "/tts/v1/voice")[number % 2]
    body: dict[str, Any] = {"text": LONG_TEXT, "speed": 0.5, "output_format": "wav"}
    if number % 2:
        audio = {**LINEAR16, "speakingRate": 0.5}
        body |= {"voiceId": attacker.target.voice_id, "audioConfig": audio}
    headers = {"Idempotency-Key": uuid4().hex} if number % 4 < 2 else {}
    await attacker.post(path, attacker.key(number), json=body, headers=headers)


@looped_attack(loops=16, accounts=1, plan="enterprise")
async def hang_ups(attacker: Attacker, number: int) -> None:
    """Clients of speech, transcripts and chats that leave just before the answer, 16 at once."""
    key = attacker.key(number)
    audio = await clip(attacker, 120.0)
    requests: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: attacker.post("/tts-synthesize", key, json={"text": LONG_TEXT}),
        lambda: upload(attacker, "/stt", key, audio),
        lambda: attacker.post("/v1/chat/completions", key, json=LONG_CHAT),
    )
    await leave_after(attacker, 2, requests[number % 3]())


@looped_attack(loops=32, accounts=1, plan="enterprise")
async def long_texts(attacker: Attacker, number: int) -> None:
    """5,000 characters at speed 0.5, ten minutes of speech, 32 at once of one account."""
    body = {"text": LONG_TEXT, "speed": 0.5}
    await attacker.post("/tts-synthesize", attacker.key(number), json=body)


@looped_attack(loops=64, accounts=1, plan="enterprise")
async def inworld_flood(attacker: Attacker, number: int) -> None:
    """64 texts at once on Inworld's routes, whole and streamed, of one account."""
    path = ("/tts/v1/voice", "/tts/v1/voice:stream")[number % 2]
    voice = attacker.target.voice_id
    body = {"text": LONG_TEXT[:2000], "voiceId": voice, "audioConfig": LINEAR16}
    await attacker.post(path, attacker.key(number), json=body)


async def upload_anywhere(attacker: Attacker, number: int, audio: bytes) -> None:
    """Upload a file to the next route that decodes files."""
    path = UPLOADS[attacker.outcomes.total() % len(UPLOADS)]
    model = "general" if path == "/stt" else "whisper-1"
    await upload(attacker, path, attacker.key(number), audio, model=model)


@looped_attack(loops=3, accounts=1, plan="enterprise")
async def flacs_of_tiny_blocks(attacker: Attacker, number: int) -> None:
    """FLAC files of 16-sample blocks, which take seconds of CPU per MiB to decode, 3 at once."""
    audio = await asyncio.to_thread(tiny_blocks, 2 << 20)
    await upload_anywhere(attacker, number, audio)


@looped_attack(loops=3, accounts=1, plan="enterprise")
async def opus_of_short_frames(attacker: Attacker, number: int) -> None:
    """Ten minutes of Opus in packets of 2.5 ms, 3 at once."""
    audio = await asyncio.to_thread(short_packets, 590.0)
    await upload_anywhere(attacker, number, audio)


@looped_attack(loops=12, accounts=1, plan="enterprise")
async def long_recordings(attacker: Attacker, number: int) -> None:
    """Eight minutes of speech to /stt with words and speakers, 12 at once of one account."""
    audio = await clip(attacker, 500.0)  # under 25 MB
    key = attacker.key(number)
    await upload(attacker, "/stt", key, audio, timestamps="true", speaker_labels="true")


@attack()
async def correction_flood(attacker: Attacker) -> None:
    """Corrections of 20,000 characters inside a code block, all saved in one chat."""
    key = await attacker.account("enterprise")
    first = await attacker.post("/v1/chat/completions", key, json=CORRECTION)
    chat = first.json["chat_id"] if first.status == 200 else None

    async def correct(number: int) -> None:
        if number or chat is None:
            body = {**CORRECTION, "chat_id": chat}
            await attacker.post("/v1/chat/completions", key, json=body)
        else:
            await attacker.request("GET", f"/chats/{chat}", key)

    await attacker.many(8, correct)


@looped_attack(loops=8, accounts=1, plan="enterprise")
async def correction_of_lines(attacker: Attacker, number: int) -> None:
    """Free corrections by rules, of texts with the number of short lines that takes longest."""
    await attacker.post("/v1/chat/completions", attacker.key(number), json=FREE_CORRECTION)


@looped_attack(loops=16, accounts=1, plan="enterprise")
async def long_chats(attacker: Attacker, number: int) -> None:
    """Chats whose messages fill the context window, 16 at once, each cancelled late."""
    body = {**LONG_CHAT, "max_tokens": 400}
    asking = attacker.post("/v1/chat/completions", attacker.key(number), json=body)
    await leave_after(attacker, 8, asking)


@looped_attack(loops=2, accounts=2, plan="enterprise")
async def voices_deleted_in_use(attacker: Attacker, number: int) -> None:
    """Voices that are created and deleted again and again, while texts are spoken with them."""
    key = attacker.key(number)
    sample = await clip(attacker, 45.0)
    form = FormData()
    form.add_field("name", "a")
    for file in range(3):
        form.add_field("files", sample, filename=f"{file}.wav")
    answer = await attacker.post("/voices", key, data=form)
    if answer.status != 201:
        await asyncio.sleep(1)
        return
    voice = answer.json["id"]
    await asyncio.gather(
        attacker.post("/tts-stream", key, json={"text": LONG_TEXT, "voice_id": voice}),
        attacker.request("DELETE", f"/voices/{voice}", key),
    )
