"""Attacks by what a whole request says: JSON, Unicode, forms, compression, keys."""

import asyncio
import gzip
import zlib
from itertools import cycle
from pathlib import Path
from uuid import uuid4

from aiohttp import FormData

from benchmarks.hostile.attacker import Attacker, attack

MIB = 1 << 20
JSON = {"Content-Type": "application/json"}


@attack(cheap=True)
async def deep_and_wide_json(attacker: Attacker) -> None:
    """A MiB of brackets, of keys, of duplicate keys, of digits, of escapes, to four routes."""
    keys = [await attacker.account("enterprise") for _ in range(4)]
    wide = b"{" + b",".join(b'"%d":0' % number for number in range(90_000)) + b"}"
    bodies = cycle(
        [
            b'{"text":' + b"[" * (MIB - 100),
            b'{"text":' + b'{"a":' * 200_000,
            b"[" + b"[]," * 300_000 + b"[]]",
            wide[:MIB],
            b'{"text":"a"' + b',"text":"b"' * 90_000 + b"}",
            b'{"text":' + b"9" * (MIB - 100) + b"}",
            b'{"text":"' + b"\\u0041" * 170_000 + b'"}',
            b'{"text":"' + b"\\" * (MIB - 100) + b'"}',
            b'{"text":1' + b"0" * 300 + b"e" + b"9" * 300 + b"}",
            b'{"messages":[' + b'{"role":"user","content":""},' * 30_000 + b"0]}",
        ]
    )
    paths = ("/tts-synthesize", "/v1/chat/completions", "/webhooks", "/openai/v1/audio/speech")

    async def send(number: int) -> None:
        await attacker.post(paths[number % 4], keys[number % 4], data=next(bodies), headers=JSON)

    await attacker.many(8, send)


ODD_TEXTS = (
    "a\0b",
    "e" + "\u0301" * 4000,
    "\u202e" * 2000 + "abc" + "\u2066" * 2000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 600,
    "\ufdfa" * 4000,
    "\u1160\u3164\u200b\ufeff" * 1000,
    "\U000e0041" * 4000,
    "٣" * 4000,
    "½" * 4000,
    "1,000,000,000,000.99 $ " * 200,
    "a." * 2400,
    "https://a.b/?" + "%00&" * 1100,
    "\n" * 4999 + "a",
    "ﬁ" * 4000,
    "\ud7ff\ue000\uffff" * 1500,
    "Ⅷ" * 4000,
    "((((" * 1200,
    "Dr. St. No. " * 400,
)


@attack("L1")
async def odd_texts(attacker: Attacker) -> None:
    """NUL, combining marks, bidirectional controls, ligatures and figures in every field."""
    keys = [await attacker.account("enterprise") for _ in range(2)]
    texts = cycle(ODD_TEXTS)

    async def send(number: int) -> None:
        text, key = next(texts), keys[number % 2]
        await attacker.post("/tts-stream", key, json={"text": text})
        await attacker.post("/tts-synthesize", key, json={"text": "Hi.", "voice": text[:190]})
        await attacker.post("/tts-stream", key, json={"text": "Hi.", "voice_id": text[:90]})
        await attacker.post("/v1/chat/completions", key, json={"text": text, "stream": False})
        await attacker.request("GET", "/files/%00?expires=9999999999&signature=a")
        await attacker.request("GET", f"/voices/{text[:20]}", key)

    await attacker.many(4, send)


@attack()
async def multipart_tricks(attacker: Attacker) -> None:
    """Forms of 10,000 parts, endless part headers, no end, nested boundaries, names of paths."""
    keys = [await attacker.account("enterprise") for _ in range(2)]
    boundary = b"b" * 30
    part = b"--" + boundary + b'\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n'
    end = b"\r\n--" + boundary + b"--\r\n"
    bodies = cycle(
        [
            part % (b"language", b"") * 10_000 + end,
            part % (b"audio", b'; filename="' + b"../" * 20_000 + b'"') + b"x" + end,
            part % (b"audio", b'; filename="a"\r\nX: ' + b"y" * MIB) + end,
            part % (b"audio", b'; filename="a"') + b"\r\n-" * 300_000,
            part % (b"audio", b'; filename="a"') + (b"\r\n--" + boundary[:-1]) * 100_000 + end,
            b"\r\n" * MIB,
            part % (b"n" * 60_000, b"") + b"x" + end,
            part % (b"audio", b'; filename="a"\r\nContent-Transfer-Encoding: base64') + b"x" + end,
            part % (b"audio", b"; filename*=UTF-8''%00%FF") + b"x" + end,
        ]
    )
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}
    paths = ("/stt", "/voices", "/audio/verify")

    async def send(number: int) -> None:
        path = paths[number % len(paths)]
        await attacker.post(path, keys[number % 2], data=next(bodies), headers=headers)

    await attacker.many(6, send)


@attack("M7")
async def one_letter_boundaries(attacker: Attacker) -> None:
    """Forms of 25 MB of the letter `a` with the boundary `a` and an Idempotency-Key."""
    key = await attacker.account()
    body = b"a" * (25 * MIB - 1000)
    headers = {"Content-Type": "multipart/form-data; boundary=a"}

    async def send(_: int) -> None:
        once = {**headers, "Idempotency-Key": uuid4().hex}
        await attacker.post("/stt", key, data=body, headers=once)

    await attacker.many(2, send)


@attack(cheap=True)
async def compression_bombs(attacker: Attacker) -> None:
    """Bodies in gzip, deflate and nested gzip that inflate a thousandfold, to JSON and forms."""
    key = await attacker.account("enterprise")
    text = b'{"text": "' + b"a" * (64 * MIB) + b'"}'
    zeros = await asyncio.to_thread(gzip.compress, text)
    bodies = cycle(
        [
            ("gzip", zeros),
            ("deflate", await asyncio.to_thread(zlib.compress, text)),
            ("gzip, gzip", gzip.compress(zeros)),
            ("br", b"\xff" * 1000),
        ]
    )

    async def send(number: int) -> None:
        encoding, body = next(bodies)
        await attacker.post(
            ("/tts-synthesize", "/v1/chat/completions")[number % 2],
            key,
            data=body,
            headers={**JSON, "Content-Encoding": encoding},
        )

    await attacker.many(4, send)


@attack("H1")
async def large_uploads(attacker: Attacker) -> None:
    """Uploads of 25 MB that are no audio, and of ten files of 25 MB for a voice."""
    key = await attacker.account("enterprise")
    noise = bytes(range(256)) * (25 * 4096 - 40)

    async def send(number: int) -> None:
        form = FormData()
        form.add_field("name", "a")
        for at in range(10 if number % 2 else 1):
            form.add_field("files" if number % 2 else "audio", noise, filename=str(at))
        await attacker.post(("/stt", "/voices")[number % 2], key, data=form)

    await attacker.many(4, send)


@attack()
async def replayed_uploads(attacker: Attacker) -> None:
    """The same Idempotency-Key from 40 connections at once, with other bodies and other paths."""
    key = await attacker.account("enterprise")
    clip = Path(attacker.target.clip).read_bytes()

    async def send(number: int) -> None:
        once = {"Idempotency-Key": f"key-{number % 3}"}
        form = FormData()
        form.add_field("audio", clip + bytes(number % 5), filename="a.wav")
        await attacker.post("/stt", key, data=form, headers=once)
        body = {"text": f"Number {number % 5}."}
        await attacker.post("/tts-synthesize", key, json=body, headers=once)

    await attacker.many(40, send)


def union(count: int) -> dict[str, object]:
    """A JSON schema with that many alternatives."""
    return {"oneOf": [{"const": number} for number in range(count)]}


@attack("H3")
async def schema_unions(attacker: Attacker) -> None:
    """JSON schemas of 3,000 alternatives, and five tools of 2,000 each, 4 at once."""
    key = await attacker.account("enterprise")
    messages = [{"role": "user", "content": "Answer."}]
    schema = {"name": "a", "schema": {"type": "object", "properties": {"a": union(3000)}}}
    tools = [
        {"name": f"t{number}", "parameters": {"type": "object", "properties": {"a": union(2000)}}}
        for number in range(5)
    ]
    base = {"messages": messages, "stream": False, "max_tokens": 20, "save_chat": False}
    bodies = (
        {**base, "response_format": {"type": "json_schema", "json_schema": schema}},
        {**base, "tool": tools, "tool_choice": "required"},
    )

    async def send(number: int) -> None:
        await attacker.post("/v1/chat/completions", key, json=bodies[number % 2])

    await attacker.many(4, send)


@attack("H3")
async def schema_mazes(attacker: Attacker) -> None:
    """Schemas that refer to themselves, nest deeply or need large automata, none twice."""
    key = await attacker.account("enterprise")
    counter = iter(range(10**9))

    def deep(levels: int) -> dict[str, object]:
        value: dict[str, object] = {"type": "string"}
        for _ in range(levels):
            value = {"type": "object", "properties": {"a": value, "b": value}}
        return value

    def mazes() -> list[dict[str, object]]:
        some = next(counter)
        reference = {"$ref": "#/$defs/a"}
        return [
            {"$defs": {"a": {"anyOf": [reference, reference]}}, **reference},
            {"$defs": {"a": {"type": "array", "items": reference}}, "anyOf": [reference] * 50},
            deep(11),
            {"type": "string", "pattern": f"^(a|b|ab)*{'(c|d)?' * 40}{some}$"},
            {"type": "string", "minLength": 900, "maxLength": 1000 + some % 1000},
            {"allOf": [{"anyOf": [{"minimum": one} for one in range(30)]}] * 4},
            {"type": "integer", "minimum": some, "maximum": 10**300 + some},
            {"enum": [f"{some}-{number}" for number in range(2000)]},
        ]

    async def send(number: int) -> None:
        shapes = mazes()
        shape = {"type": "object", "properties": {"a": shapes[number % len(shapes)]}}
        named = {"name": "a", "schema": shape}
        body = {
            "messages": [{"role": "user", "content": "Answer."}],
            "response_format": {"type": "json_schema", "json_schema": named},
            "stream": False,
            "max_tokens": 20,
            "save_chat": False,
        }
        await attacker.post("/v1/chat/completions", key, json=body)

    await attacker.many(8, send)
