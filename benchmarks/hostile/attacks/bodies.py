"""Attacks by what a whole request says: JSON, Unicode, forms, compression, keys."""

import asyncio
import gzip
import zlib
from functools import cache
from itertools import count, cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp import FormData

from benchmarks.hostile.attacker import Attacker, looped_attack

MIB = 1 << 20
JSON = {"Content-Type": "application/json"}
TREE_PATHS = ("/tts-synthesize", "/v1/chat/completions", "/webhooks", "/openai/v1/audio/speech")
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
BOUNDARY = b"b" * 30
PART = b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n'
END = b"\r\n--" + BOUNDARY + b"--\r\n"
FORM_PATHS = ("/stt", "/voices", "/audio/verify")
ANSWER = {
    "messages": [{"role": "user", "content": "Answer."}],
    "stream": False,
    "max_tokens": 20,
    "save_chat": False,
}
NUMBERS = count()


@cache
def trees() -> "cycle[bytes]":
    """Bodies of about a MiB that are hard to parse."""
    return cycle(
        [
            b'{"text":' + b"[" * (MIB - 100),
            b'{"text":' + b'{"a":' * 200_000,
            b"[" + b"[]," * 300_000 + b"[]]",
            (b"{" + b",".join(b'"%d":0' % number for number in range(90_000)) + b"}")[:MIB],
            b'{"text":"a"' + b',"text":"b"' * 90_000 + b"}",
            b'{"text":' + b"9" * (MIB - 100) + b"}",
            b'{"text":"' + b"\\u0041" * 170_000 + b'"}',
            b'{"text":"' + b"\\" * (MIB - 100) + b'"}',
            b'{"text":1' + b"0" * 300 + b"e" + b"9" * 300 + b"}",
            b'{"messages":[' + b'{"role":"user","content":""},' * 30_000 + b"0]}",
        ]
    )


@looped_attack(loops=8, accounts=4, plan="enterprise", cheap=True)
async def deep_and_wide_json(attacker: Attacker, number: int) -> None:
    """A MiB of brackets, of keys, of duplicate keys, of digits, of escapes, to four routes."""
    path = TREE_PATHS[number % 4]
    await attacker.post(path, attacker.key(number), data=next(trees()), headers=JSON)


@looped_attack(loops=4, accounts=2, plan="enterprise")
async def odd_texts(attacker: Attacker, number: int) -> None:
    """NUL, combining marks, bidirectional controls, ligatures and figures in every field."""
    key = attacker.key(number)
    text = ODD_TEXTS[next(NUMBERS) % len(ODD_TEXTS)]
    await attacker.post("/tts-stream", key, json={"text": text})
    await attacker.post("/tts-synthesize", key, json={"text": "Hi.", "voice": text[:190]})
    await attacker.post("/tts-stream", key, json={"text": "Hi.", "voice_id": text[:90]})
    await attacker.post("/v1/chat/completions", key, json={"text": text, "stream": False})
    await attacker.request("GET", "/files/%00?expires=9999999999&signature=a")
    await attacker.request("GET", f"/voices/{text[:20]}", key)


@cache
def forms() -> "cycle[bytes]":
    """Forms that are hard to parse."""
    return cycle(
        [
            PART % (b"language", b"") * 10_000 + END,
            PART % (b"audio", b'; filename="' + b"../" * 20_000 + b'"') + b"x" + END,
            PART % (b"audio", b'; filename="a"\r\nX: ' + b"y" * MIB) + END,
            PART % (b"audio", b'; filename="a"') + b"\r\n-" * 300_000,
            PART % (b"audio", b'; filename="a"') + (b"\r\n--" + BOUNDARY[:-1]) * 100_000 + END,
            b"\r\n" * MIB,
            PART % (b"n" * 60_000, b"") + b"x" + END,
            PART % (b"audio", b'; filename="a"\r\nContent-Transfer-Encoding: base64') + b"x" + END,
            PART % (b"audio", b"; filename*=UTF-8''%00%FF") + b"x" + END,
        ]
    )


@looped_attack(loops=6, accounts=2, plan="enterprise")
async def multipart_tricks(attacker: Attacker, number: int) -> None:
    """Forms of 10,000 parts, endless part headers, no end, nested boundaries, paths as names."""
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}
    path = FORM_PATHS[number % len(FORM_PATHS)]
    await attacker.post(path, attacker.key(number), data=next(forms()), headers=headers)


@looped_attack(loops=2, accounts=1)
async def one_letter_boundaries(attacker: Attacker, number: int) -> None:
    """Forms of 25 MB of the letter `a` with the boundary `a` and an Idempotency-Key."""
    headers = {"Content-Type": "multipart/form-data; boundary=a", "Idempotency-Key": uuid4().hex}
    body = b"a" * (25 * MIB - 1000)
    await attacker.post("/stt", attacker.key(number), data=body, headers=headers)


@cache
def bombs() -> "cycle[tuple[str, bytes]]":
    """Encodings and bodies that inflate a thousandfold."""
    text = b'{"text": "' + b"a" * (64 * MIB) + b'"}'
    zipped = gzip.compress(text)
    return cycle(
        [
            ("gzip", zipped),
            ("deflate", zlib.compress(text)),
            ("gzip, gzip", gzip.compress(zipped)),
            ("br", b"\xff" * 1000),
        ]
    )


@looped_attack(loops=4, accounts=1, plan="enterprise", cheap=True)
async def compression_bombs(attacker: Attacker, number: int) -> None:
    """Bodies in gzip, deflate and nested gzip that inflate a thousandfold, to JSON and forms."""
    encoding, body = next(await asyncio.to_thread(bombs))
    path = ("/tts-synthesize", "/v1/chat/completions")[number % 2]
    headers = {**JSON, "Content-Encoding": encoding}
    await attacker.post(path, attacker.key(number), data=body, headers=headers)


@looped_attack(loops=4, accounts=1, plan="enterprise")
async def large_uploads(attacker: Attacker, number: int) -> None:
    """Uploads of 25 MB that are no audio, and of ten files of 25 MB for a voice."""
    path, field, files = (("/stt", "audio", 1), ("/voices", "files", 10))[number % 2]
    noise = bytes(range(256)) * (25 * 4096 - 40)
    form = FormData()
    form.add_field("name", "a")
    for file in range(files):
        form.add_field(field, noise, filename=str(file))
    await attacker.post(path, attacker.key(number), data=form)


@looped_attack(loops=40, accounts=1, plan="enterprise")
async def replayed_uploads(attacker: Attacker, number: int) -> None:
    """The same Idempotency-Key from 40 connections at once, with other bodies and other paths."""
    key = attacker.key(number)
    headers = {"Idempotency-Key": f"key-{number % 3}"}
    audio = Path(attacker.target.clip).read_bytes() + bytes(number % 5)
    form = FormData()
    form.add_field("audio", audio, filename="a.wav")
    await attacker.post("/stt", key, data=form, headers=headers)
    body = {"text": f"Number {number % 5}."}
    await attacker.post("/tts-synthesize", key, json=body, headers=headers)


def object_with(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


def json_answer(schema: dict[str, Any]) -> dict[str, Any]:
    """A request for JSON of an object with a property of that schema."""
    named = {"name": "a", "schema": object_with(schema)}
    return {**ANSWER, "response_format": {"type": "json_schema", "json_schema": named}}


def union(alternatives: int) -> dict[str, Any]:
    return {"oneOf": [{"const": number} for number in range(alternatives)]}


UNIONS = (
    json_answer(union(3000)),
    {
        **ANSWER,
        "tool": [{"name": f"t{n}", "parameters": object_with(union(2000))} for n in range(5)],
        "tool_choice": "required",
    },
)


@looped_attack(loops=4, accounts=1, plan="enterprise")
async def schema_unions(attacker: Attacker, number: int) -> None:
    """JSON schemas of 3,000 alternatives, and five tools of 2,000 each, 4 at once."""
    await attacker.post("/v1/chat/completions", attacker.key(number), json=UNIONS[number % 2])


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}}
    return schema


def mazes() -> list[dict[str, Any]]:
    """Schemas that refer to themselves, nest deeply or need large automata, each used once."""
    number = next(NUMBERS)
    reference = {"$ref": "#/$defs/a"}
    return [
        {"$defs": {"a": {"anyOf": [reference, reference]}}, **reference},
        {"$defs": {"a": {"type": "array", "items": reference}}, "anyOf": [reference] * 50},
        deep(11),
        {"type": "string", "pattern": f"^(a|b|ab)*{'(c|d)?' * 40}{number}$"},
        {"type": "string", "minLength": 900, "maxLength": 1000 + number % 1000},
        {"allOf": [{"anyOf": [{"minimum": least} for least in range(30)]}] * 4},
        {"type": "integer", "minimum": number, "maximum": 10**300 + number},
        {"enum": [f"{number}-{value}" for value in range(2000)]},
    ]


@looped_attack(loops=8, accounts=1, plan="enterprise")
async def schema_mazes(attacker: Attacker, number: int) -> None:
    """Schemas that refer to themselves, nest deeply or need large automata, each used once."""
    body = json_answer(mazes()[number])
    await attacker.post("/v1/chat/completions", attacker.key(number), json=body)
