"""The parsers under any bytes: each function returns, or raises what is a bug.

A fuzzer (`tests.hostile.fuzz`) calls them with bytes that it changes. Inputs that once failed are
in the folder `crashes`, which `tests/hostile/test_parsers.py` runs again.
"""

import asyncio
import base64
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from random import Random
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
from jsonschema import Draft202012Validator as Validator  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable
from starlette.requests import Request

from api.http.admission import BodySpace
from api.http.bodies import MAX_DEPTH, parse_json
from api.http.context import begin_context
from api.http.errors import ApiError
from api.http.turns import Turn, Turns
from api.http.uploads import UploadLimits, receive_form
from api.inworld import messages as inworld
from api.sockets.kernel.conversation import ClientFault, checked, parse_event
from api.sockets.stt.conversation import parse_client_event
from api.sockets.tts import events as tts
from configs.schema.platform import SlowClients
from deployments.gateway.connections import HEADERS
from models.llm.structured_output.ast import Grammar, GrammarBuilder, SchemaError, WorkBudget
from models.llm.structured_output.json_schema import SchemaCompiler
from models.llm.structured_output.notations import to_gbnf
from models.llm.structured_output.parser_state import ParserState
from pipelines.audio.decode import worker
from pipelines.audio.decode.decoder import HEAD_BYTES, sniff
from pipelines.audio.decode.stream import LiveAudio, LiveSampleRate, decode_base64
from pipelines.errors import InvalidAudio, PipelineError
from pipelines.text.chunking import read_chunks
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.segmentation import clean
from tests.hostile.audio_files import CONTAINERS, encode, tone, wav
from tests.hostile.fuzz.http_requests import read_requests
from tests.models.llm.structured_output import gbnf_samples
from tests.models.llm.structured_output.schemas import GOOD

LANGUAGES = ("en", "de", "fr", "es", "hi", "ar", "zh", "ja", "pl", "bn")
# Spoken characters for a written one: "1e9" or "½" are some twenty words, and some languages count
# in longer words.
LONGEST = 80
RATES: tuple[LiveSampleRate, ...] = get_args(LiveSampleRate)
BOUNDARY = b"frontier"
FORM_LIMITS = UploadLimits(max_files=3, max_fields=5, max_file_bytes=20_000)
MAX_SECONDS = 0.25
AUDIO_LIMITS: dict[str, Any] = {  # of the decoder, so low that a few KB reach each
    "CODEC_SLACK_S": 0.05,
    "MAX_PCM_BYTES": 64 * 2**10,
    "MAX_STEPS_PER_S": 100,
    "FREE_STEPS": 10,
    "BLOCK_SAMPLES": 1024,
}
MAX_CPU_S = 1.0  # of a file within them; the worker's own limit would end this process
AUDIO_RATE = 16_000  # Hz
MOST_BYTES = 100_000  # of a shortest value: nested `minItems` may ask for 400 MB
TEXTS = 2  # sampled of each grammar


def json_body(data: bytes) -> None:
    """What is accepted is JSON as Python reads it, and not deeper than allowed."""
    with suppress(ApiError):
        value = parse_json(data)
        assert value == json.loads(data)
        assert _depth(value) <= MAX_DEPTH
        json.dumps(value, ensure_ascii=False).encode()


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def multipart(data: bytes) -> None:
    """Received in pieces whose size the first byte says; files have the sizes that they claim."""
    size, body = (data[0] if data else 0) + 1, data[1:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    messages = iter(
        {"type": "http.request", "body": piece, "more_body": at < len(pieces) - 1}
        for at, piece in enumerate(pieces)
    )

    async def receive() -> Any:
        return next(messages)

    content_type = b"multipart/form-data; boundary=" + BOUNDARY
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", content_type)]}
    context = begin_context(scope, Turn(Turns(1), "10.0.0.1"), SlowClients())
    context.upload_space = partial(BodySpace(sys.maxsize, "uploads").of, 0)

    async def check() -> None:
        with suppress(ApiError):
            async with receive_form(Request(scope, receive), FORM_LIMITS) as form:
                assert len(form.files) <= FORM_LIMITS.max_files
                assert len(form.values) <= FORM_LIMITS.max_fields
                for file in form.files:
                    assert file.path.stat().st_size == file.size_bytes
                    assert file.size_bytes <= FORM_LIMITS.max_file_bytes

    _loop().run_until_complete(check())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def http(data: bytes) -> None:
    """The same requests are read whatever the pieces; the first byte says the size of some."""
    size, sent = (data[0] if data else 0) + 1, data[1:]
    cut = [sent[at : at + size] for at in range(0, len(sent), size)]
    whole, pieces = (_loop().run_until_complete(read_requests(one)) for one in ([sent], cut))
    # In one piece more requests wait at once than are allowed.
    assert whole == pieces[: len(whole)], (whole, pieces)
    for method, path, headers, _ in whole:
        assert method and path
        assert len(headers) <= HEADERS and not any(b"\0" in value for _, value in headers)


def json_schema(data: bytes) -> None:
    """A schema made of the bytes is refused, or its grammar derives only what obeys it."""
    _check_schema(_Growth(data).schema(6))


def json_schema_text(data: bytes) -> None:
    """The same for a schema in JSON, which may be no schema at all."""
    with suppress(ApiError):
        _check_schema(parse_json(data))


def _check_schema(schema: Any) -> None:
    # A reference that leads nowhere is not refused where nothing is derived from it, as in
    # `additionalProperties` beside `properties`.
    with suppress(SchemaError, Unresolvable, gbnf_samples.TooLong):
        budget = WorkBudget()
        root = SchemaCompiler(schema, GrammarBuilder(budget)).compile()
        grammar = Grammar(root, budget)
        start = ParserState.start(grammar)
        if start.min_bytes > MOST_BYTES:  # the service completes only within its token budget
            return
        json.loads(start.completion())
        rules = gbnf_samples.parse(to_gbnf(grammar))
        for number in range(TEXTS):
            text = gbnf_samples.sample(rules, Random(number), 0.5)
            with suppress(re.error):  # a pattern of a branch that nothing can obey
                Validator(schema).validate(json.loads(text))


class _Growth:
    """Builds a JSON schema of bytes, so that most mutations of them are schemas too."""

    TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
    PATTERNS = ("^a+$", "[0-9]{2,4}", "(a|b)*c?", r"^\d+\.\d$", "x{0,30}", "(", "^(a|ab)(c|bcd)$")
    FORMATS = ("date", "uuid", "date-time", "email", "unknown")

    def __init__(self, data: bytes) -> None:
        self._bytes: Iterator[int] = iter(data)

    def schema(self, depth: int) -> Any:
        kinds = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "true", "several")
        kind = kinds[self._below(len(kinds))] if depth else "type"
        if kind == "type":
            return self._typed(depth)
        if kind == "enum":
            return {"enum": [self._value() for _ in range(self._below(5))]}
        if kind == "const":
            return {"const": self._value()}
        if kind in ("anyOf", "oneOf", "allOf"):
            return {kind: [self.schema(depth - 1) for _ in range(self._below(5))]}
        if kind == "$ref":
            return {"$ref": ("#", "#/properties/a", "#/$defs/x", "x")[self._below(4)]}
        if kind == "true":
            return bool(self._below(2))
        return {**self._typed(depth), **_as_dict(self.schema(depth - 1))}

    def _typed(self, depth: int) -> dict[str, Any]:
        kind = self.TYPES[self._below(len(self.TYPES))] if depth else "boolean"
        schema: dict[str, Any] = {"type": kind}
        if kind == "object":
            names = "abcde"[: self._below(6)]
            schema["properties"] = {name: self.schema(depth - 1) for name in names}
            schema["required"] = [name for name in names if self._below(2)]
            if self._below(2):
                schema["additionalProperties"] = self.schema(depth - 1)
        elif kind == "array":
            schema["items"] = self.schema(depth - 1)
            self._bounds(schema, "minItems", "maxItems")
        elif kind == "string":
            if self._below(2):
                schema["pattern"] = self.PATTERNS[self._below(len(self.PATTERNS))]
            elif self._below(2):
                schema["format"] = self.FORMATS[self._below(len(self.FORMATS))]
            self._bounds(schema, "minLength", "maxLength")
        elif kind in ("integer", "number"):
            self._bounds(schema, "minimum", "maximum")
        return schema

    def _bounds(self, schema: dict[str, Any], *keys: str) -> None:
        for key in keys:
            if self._below(2):
                schema[key] = self._below(256) - (100 if "um" in key else 0)

    def _value(self) -> Any:
        return (None, True, self._below(256), "text", 0.5, -1, "é", [1], {"a": 1}, "")[
            self._below(10)
        ]

    def _below(self, count: int) -> int:
        return next(self._bytes, 0) % count


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def text(data: bytes) -> None:
    """Cleaned, normalised and cut into chunks, in the language that the first byte says."""
    language = LANGUAGES[data[0] % len(LANGUAGES)] if data else "en"
    written = clean(data[1:].decode(errors="replace"))
    spoken = normalise(written, language)
    assert len(spoken) <= LONGEST * (len(written) + 1), (len(written), len(spoken))
    chunks = read_chunks(written, languages=frozenset({language}), language=language, words=True)
    for chunk in islice(chunks, 200):
        assert chunk.text.strip()


def socket_message(data: bytes) -> None:
    """A text message of each protocol; what is not UTF-8 never gets that far."""
    message = data.decode(errors="replace")
    with suppress(ClientFault):
        parse_client_event(message)
    with suppress(ClientFault):
        name, body = tts.parse_message(message)
        checked(tts.MESSAGES[name], body, name)
    with suppress(ClientFault):
        inworld.parse_message(parse_event(message))


def sniffed(data: bytes) -> None:
    """The first bytes of a file."""
    with suppress(InvalidAudio):
        sniff(data[:HEAD_BYTES])


def live_audio(data: bytes) -> None:
    """Audio of a socket in pieces: two bytes say format and length of each."""
    audio = LiveAudio()
    samples = 0
    while len(data) > 2:
        kind, size = data[0], data[1] * 8
        piece, data = data[2 : 2 + size], data[2 + size :]
        encoding = ("mulaw", "linear")[kind % 2]
        pcm = audio.accept_bytes(piece, encoding, RATES[kind // 2 % len(RATES)])  # type: ignore[arg-type]
        assert pcm.dtype == np.float32 and np.isfinite(pcm).all()
        samples += len(pcm)
    audio.flush()
    assert samples <= 2 * 16_000 * audio.received_s + 16_000
    with suppress(InvalidAudio):
        decode_base64(data.decode("latin-1"))


def audio_file(data: bytes) -> None:
    """A file in the format that it begins with, by FFmpeg in this process."""
    with suppress(PipelineError):
        decode_within_limits(data)


def decode_within_limits(data: bytes) -> None:
    """Neither what is decoded nor what is written before a refusal exceeds a limit.

    Raises PipelineError.
    """
    job = {
        "format": sniff(data[:HEAD_BYTES]),
        "sample_rate": AUDIO_RATE,
        "max_seconds": MAX_SECONDS,
    }
    target, frames, began = io.BytesIO(), list[Any](), time.thread_time()
    read_frames = worker._frames

    def counted(*arguments: Any) -> Iterator[Any]:
        for frame in read_frames(*arguments):
            frames.append((frame.samples, frame.sample_rate, frame.layout.nb_channels))
            yield frame

    longest_s = MAX_SECONDS + AUDIO_LIMITS["CODEC_SLACK_S"]
    with patch.multiple(worker, _frames=counted, **AUDIO_LIMITS):
        try:
            decoded = worker.decode(job, io.BytesIO(data), target)
            assert decoded["duration_s"] <= longest_s
            decoded_bytes = sum(4 * samples * channels for samples, _, channels in frames)
            assert decoded_bytes <= AUDIO_LIMITS["MAX_PCM_BYTES"]
        finally:
            assert time.thread_time() - began <= MAX_CPU_S
            seconds = sum(samples / max(rate, 1) for samples, rate, _ in frames)
            steps = AUDIO_LIMITS["FREE_STEPS"] + AUDIO_LIMITS["MAX_STEPS_PER_S"] * seconds
            assert len(frames) <= steps, (len(frames), seconds)
            pcm = np.frombuffer(target.getvalue(), np.float32)
            assert len(pcm) <= longest_s * AUDIO_RATE + 1, len(pcm)
            assert np.isfinite(pcm).all() and (np.abs(pcm) <= 1).all()


PARSERS: dict[str, Callable[[bytes], None]] = {
    "json-body": json_body,
    "multipart": multipart,
    "http": http,
    "json-schema": json_schema,
    "json-schema-text": json_schema_text,
    "text": text,
    "socket-message": socket_message,
    "sniffing": sniffed,
    "live-audio": live_audio,
    "audio-file": audio_file,
}


def seeds(name: str) -> Sequence[bytes]:
    """Valid inputs, from which a fuzzer begins."""
    return tuple(_SEEDS[name]())


def _json_seeds() -> Iterator[bytes]:
    yield from (b"{}", b'{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00"]}', b"[[[]]]")


def _form_seeds() -> Iterator[bytes]:
    part = b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    end = b"--" + BOUNDARY + b"--\r\n"
    field, file = (b"language", b"", b"en"), (b"audio", b'; filename="a.wav"', b"RIFF" * 9)
    for size in (0, 7, 255):
        yield bytes([size]) + part % field + part % file + end
    yield b"\x40" + part % (b"a", b'\r\nContent-Type: text/plain; charset="x"', b"--" * 9) + end


def _http_seeds() -> Iterator[bytes]:
    get = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
    post = b"POST /d HTTP/1.1\r\nHost: x\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3;e=f\r\nabc\r\n0\r\nX-Late: g\r\n\r\n"
    upgrade = b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    for size in (0, 6, 255):
        yield bytes([size]) + get + post + b"Content-Length: 5\r\n\r\nabcde" + post + chunked + get
    yield b"\x20" + upgrade + b"\x81\x82\0\0\0\0{}"


def _text_seeds() -> Iterator[bytes]:
    for number, written in enumerate(
        (
            "On 3/14/2025 I paid $1,234.50 (5-10 %) at 3:45 pm, No. 12, Dr. Smith's.",
            "Am 1. März kostet es 3,5 Mio. € – z. B. 1/2 kg.",
            "१२३ ½ ٣٤ Ⅷ km/h 20°C https://a.example/b?c=1 +49 30 123456",
        )
    ):
        yield bytes([number]) + written.encode()


def _message_seeds() -> Iterator[bytes]:
    for message in (
        {"type": "start", "languages": ["en"], "config": {"sample_rate": 16000}},
        {"type": "audio", "audio": "AAAA", "encoding": "linear", "sample_rate": 8000},
        {"create_context": {"voice_id": "a", "audio_config": {"audio_encoding": "PCM"}}},
        {"contextId": "a", "create": {"voiceId": "b", "audioConfig": {"pitch": 1}}},
    ):
        yield json.dumps(message).encode()


def _whole_files() -> Iterator[bytes]:
    for kind in CONTAINERS:
        rate = 48_000 if kind in ("ogg", "webm") else 16_000
        options = {"metadata_header_padding": "0"} if kind == "flac" else {}  # of 8 KB
        yield encode(kind, tone(0.1, rate), rate, **options)


def beyond_limits() -> Iterator[tuple[str, bytes]]:
    """Files that the decoder refuses, and a part of the message, for each of its limits."""
    quiet = np.zeros(AUDIO_RATE // 4, np.float32)
    yield "longer than", wav(bytes(1600), rate=4000, bits=8)
    yield "longer than", encode("mp3", tone(0.4))
    yield "longer than", encode("ogg", tone(0.4, 48_000), 48_000)
    yield "decodes to more", encode("flac", quiet, layout="7.1", metadata_header_padding="0")
    yield "too many pieces", encode("ogg", tone(0.2, 48_000), 48_000, frame_duration="2.5")
    yield "sample rate", wav(bytes(800), rate=worker.MIN_RATE_HZ - 1)
    yield "sample rate", wav(bytes(800), rate=worker.MAX_RATE_HZ + 1)
    yield "channels", wav(bytes(900), channels=worker.MAX_CHANNELS + 1)
    yield "not numbers", wav(b"\xff" * 800, code=3, bits=32)
    yield "no audio", wav(b"")


def _audio_seeds() -> Iterator[bytes]:
    yield from _whole_files()
    yield from (data for _, data in beyond_limits())


def _live_seeds() -> Iterator[bytes]:
    yield b"".join(bytes([kind, 20]) + bytes(range(160)) for kind in range(10))
    yield b"\0" + base64.b64encode(b"abc")


_SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "json-body": _json_seeds,
    "multipart": _form_seeds,
    "http": _http_seeds,
    "json-schema": lambda: (bytes(range(at, at + 60)) for at in range(0, 180, 20)),
    "json-schema-text": lambda: (json.dumps(schema).encode() for schema in GOOD.values()),
    "text": _text_seeds,
    "socket-message": _message_seeds,
    "sniffing": lambda: (file[:HEAD_BYTES] for file in _whole_files()),
    "live-audio": _live_seeds,
    "audio-file": _audio_seeds,
}
