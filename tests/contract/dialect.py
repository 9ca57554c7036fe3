"""Descriptions of dialects for the contract suite: keys, requests, sockets and errors."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any

import httpx

from api.http.errors import STATUS_OF_CODE

Headers = dict[str, str]
Request = dict[str, Any]
"""The arguments of `httpx.AsyncClient.post`."""
Event = dict[str, Any]
Frame = str | bytes
Wrong = tuple[Mapping[str, Any], str]
"""Changes of a request, and the begin of its error, which names the field."""


@dataclass(frozen=True, repr=False)
class Speech:
    """A request that speaks a text."""

    path: str
    request: Callable[[str, str], Request]
    """Of the text and the id of a voice, without the path."""
    format: Sequence[str]  # where the request has the format of the audio
    text: str = "text"  # its field, as errors name it
    is_streamed: bool = True
    usual: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the body with the defaults of this API."""
    wrong: Sequence[Wrong] = ()
    options: Sequence[str] = ("json",)  # where the request has its options
    answers_at_once: bool = False  # with 200, before it has found the voice

    def ask(self, text: str, voice: str) -> Request:
        return {"url": self.path.replace("{voice}", voice), **self.request(text, voice)}

    def ask_format(self, text: str, voice: str, name: str) -> Request:
        request = self.ask(text, voice)
        *keys, last = self.format
        reduce(getitem, keys, request)[last] = name
        return request

    def ask_wrongly(self, text: str, voice: str, changes: Mapping[str, Any]) -> Request:
        request = self.ask(text, voice)
        reduce(getitem, self.options, request).update(changes)
        return request


@dataclass(frozen=True, repr=False)
class Recognition:
    """A request that transcribes a recording."""

    path: str
    request: Callable[[bytes, dict[str, str]], Request]
    """Of the file and of options by the names of this dialect, without the path."""
    model: str = "model"  # its field
    language: str = "language"  # its field
    usual: Mapping[str, str] = field(default_factory=dict)
    """Options with the defaults of this API."""
    wrong: Sequence[Wrong] = ()

    def ask(self, recording: bytes, **options: Any) -> Request:
        return {"url": self.path, **self.request(recording, options)}


@dataclass(frozen=True, repr=False)
class Work:
    """A request of another kind, such as a job or embeddings."""

    path: str
    request: Callable[[bytes], Request]
    """Of a recording, without the path."""
    entries: Sequence[str] = ("hold", "capture")
    """Entries in the ledger; a job has none before it is done."""
    other_scope: str = "chat"  # scope of a key that may not do it

    def ask(self, recording: bytes, voice: str) -> Request:
        return {"url": self.path.replace("{voice}", voice), **self.request(recording)}


@dataclass(frozen=True, repr=False)
class Opening:
    """What a client sends first on a socket: options in the query, and frames."""

    query: Mapping[str, str] = field(default_factory=dict)
    frames: Sequence[Frame] = ()
    voice: str | None = None  # in the path
    fault: str = ""  # a part of the message of its error
    ends: bool = False  # whether the session ends with the error


@dataclass(frozen=True, repr=False)
class Socket:
    """A socket that speaks, listens or converses."""

    path: str  # empty for a connection of Wyoming
    service: str  # scope and price: tts, stt or chat
    fault: Callable[[Event], str]
    """The message of an event that is an error; empty for any other event."""
    query: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str, str], Sequence[Frame]] | None = None
    """Of a text and the id of a voice: the frames that speak it."""
    hear: Callable[[bytes], Sequence[Frame]] | None = None
    """Of 16-bit samples at 16 kHz: the frames that send them."""
    end: Sequence[Frame] = ()  # ends the audio of `hear`
    is_end: Callable[[Event], bool] = lambda event: False
    """Whether the event follows the last speech, or the last transcript."""
    unknown: Sequence[Opening] = ()  # of a voice, a model or a language that does not exist
    wrong: Sequence[Mapping[str, str]] = ()  # queries that get no socket
    usual: Mapping[str, str] = field(default_factory=dict)
    """Options of the query with the defaults of this API."""
    broken: Mapping[Frame, str] = field(default_factory=dict)
    """Messages that are refused, each with a part of the error's text."""
    key_queries: Sequence[str] = ("apiKey",)
    flushes_sentences: bool = False  # each is charged with the space after it
    takes_first_key: bool = False  # the handshake of a client without a key waits for its message

    def address(self, voice: str, query: Mapping[str, str] | None = None) -> str:
        options = httpx.QueryParams({**self.query, **(query or {})})
        return f"{self.path}?{options}".replace("%7Bvoice%7D", voice).replace("{voice}", voice)


@dataclass(frozen=True, repr=False)
class Dialect:
    """One API of this service, and how its clients see it."""

    name: str
    key: Callable[[str], Headers]
    """The headers with a key, as its clients send it."""
    code: Callable[[Any], str]
    """What the body of an error calls its reason."""
    hint: str  # the header that a client without a key is told to send
    other_keys: Sequence[Callable[[str], Headers]] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)  # its names of our codes
    statuses: Mapping[str, int] = field(default_factory=dict)  # that differ from ours
    fault: Callable[[Any], str] = lambda body: str(body["message"])
    """Where the body of an error names the field, and what is wrong with it."""
    speech: tuple[Speech, ...] = ()
    recognition: tuple[Recognition, ...] = ()
    work: tuple[Work, ...] = ()
    sockets: tuple[Socket, ...] = ()

    def check_refusal(self, answer: httpx.Response, code: str, status: int | None = None) -> None:
        """Checks that an answer is the error with one of our codes, as this dialect shows it."""
        expected = status or self.statuses.get(code, STATUS_OF_CODE[code])
        assert answer.status_code == expected, answer.text
        body = json.loads(answer.text.splitlines()[-1])
        assert self.code(body) == self.reasons.get(code, code), body
        assert len(answer.headers["X-Request-Id"]) == 32
        named = body.get("request_id")
        assert named in (None, answer.headers["X-Request-Id"])


def frames(*messages: Mapping[str, Any]) -> list[Frame]:
    return [json.dumps(message) for message in messages]


def pieces(data: bytes, size: int = 3200) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def base64_text(data: bytes) -> str:
    return b64encode(data).decode()
