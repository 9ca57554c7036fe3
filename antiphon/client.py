"""`Antiphon` and `AsyncAntiphon`: the same methods, which return results or awaitables of them."""

import asyncio
import base64
import json
import os
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import uuid4

import httpx

from antiphon.errors import ServiceError, error_of
from antiphon.live import USER_AGENT, Address, Message, is_local, listen, speak_live
from antiphon.types import (
    BrowserToken,
    ChatCompletion,
    CustomVoice,
    DefaultVoices,
    Done,
    ExplainBody,
    Explanation,
    ListedDictionary,
    ModelListing,
    OpenAISpeechBody,
    Page_CustomVoice_,
    Page_ListedDictionary_,
    Pronunciation,
    ScriptTurn,
    ShownDictionary,
    SynthesisBody,
    TranscriptionFields,
    TranscriptionResult,
    Usage,
)

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = httpx.Timeout(10.0, read=600.0, write=600.0)  # seconds; a model may be loading
AGAIN = (429, 502, 503, 504)
MOST_WAIT_S = 30.0  # of Retry-After; a longer one is the caller's to wait for

Audio = bytes | Path | tuple[str, bytes]  # a file, or its content with or without a name
Script = Sequence[ScriptTurn]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """What is sent, and how its answer is read: both clients send it."""

    method: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)  # of httpx
    read: Callable[[httpx.Response], T] = httpx.Response.json

    def sent_as(self) -> dict[str, Any]:
        """With a key by which the service knows a repeated POST, and does it once."""
        headers = {"Idempotency-Key": uuid4().hex} if self.method == "POST" else {}
        return {"method": self.method, "url": self.path, "headers": headers, **self.options}


class operation(Generic[P, T]):  # used as a method
    """A function that builds a request, as a method of either client."""

    def __init__(self, build: Callable[P, Request[T]]) -> None:
        self._build = build

    @overload
    def __get__(self, client: "Antiphon", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncAntiphon", owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        @wraps(self._build)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._build(*args, **kwargs))

        return call


class streamed(Generic[P, T]):
    """A function that builds a request whose answer is read while it comes. `read` gets each line
    of it, or where the whole would be bytes each piece of these; None of it is left out."""

    def __init__(self, build: Callable[P, Request[Any]], read: Callable[[Any], T | None]) -> None:
        self._build, self._read = build, read

    @overload
    def __get__(self, client: "Antiphon", owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "AsyncAntiphon", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        @wraps(self._build)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.stream(self._build(*args, **kwargs), self._read)

        return call


def given(**fields: Any) -> dict[str, Any]:
    """Those that are not None: a body without the options that were not used."""
    return {name: value for name, value in fields.items() if value is not None}


def _file(audio: Audio) -> tuple[str, bytes]:
    """Read at once, so that a repeated request can send it again."""
    if isinstance(audio, Path):
        return audio.name, audio.read_bytes()
    return audio if isinstance(audio, tuple) else ("audio", audio)


def _bytes(answer: httpx.Response) -> bytes:
    return answer.content


def _synthesised(answer: httpx.Response) -> bytes:
    return base64.b64decode(answer.json()["audio_base64"])


def as_text(answer: httpx.Response) -> str:
    """For formats other than JSON."""
    return answer.text


def _event(line: str) -> dict[str, Any] | None:
    """Of a line of Server-Sent Events. Raises ServiceError where the answer has failed."""
    if not line.startswith("data: ") or line == "data: [DONE]":
        return None
    event: dict[str, Any] = json.loads(line.removeprefix("data: "))
    if event.get("type") == "error" or isinstance(event.get("error"), dict):
        raise error_of(json.dumps(event).encode(), 0)
    return event


def _request(method: str, path: str, **options: Any) -> Request[Any]:
    """Any other request of the API, such as `request("GET", "/audit", params={"page": 2})`."""
    return Request(method, path, options)


def _speak(text: str, **options: Unpack[OpenAISpeechBody]) -> Request[bytes]:
    """The speech of a text or a document of SSML, as a whole file: mp3, wav, flac, opus, aac or pcm
    of 24 kHz. `voice` is a name or an id; by default one of the text's language. As a stream:
    pieces of the same bytes, while the speech is made."""
    body = given(input=text, **options)
    return Request("POST", "/openai/v1/audio/speech", {"json": body}, _bytes)


def _speak_script(script: Script, **options: Unpack[SynthesisBody]) -> Request[bytes]:
    """The speech of several speakers, as a file: mp3 by default."""
    body = {"script": script, **options}
    return Request("POST", "/tts-synthesize", {"json": body}, _synthesised)


def _explain(text: str | Script, **options: Unpack[ExplainBody]) -> Request[Explanation]:
    """What would be spoken of a text or a script, free of charge: its sentences in words, phonemes,
    price and seconds."""
    body = {"text" if isinstance(text, str) else "script": text, **options}
    return Request("POST", "/tts/explain", {"json": body})


def _dictionaries() -> Request[Page_ListedDictionary_]:
    """The pronunciation dictionaries of the workspace, of which there are at most 20."""
    return Request("GET", "/pronunciations")


def _dictionary(dictionary_id: str, *, version: int | None = None) -> Request[ShownDictionary]:
    """One with its entries, by default its newest version."""
    return Request("GET", f"/pronunciations/{dictionary_id}", {"params": given(version=version)})


def _export_dictionary(dictionary_id: str, *, version: int | None = None) -> Request[str]:
    """One as a document of PLS 1.0."""
    asked = given(version=version, format="pls")
    return Request("GET", f"/pronunciations/{dictionary_id}", {"params": asked}, as_text)


def _save_dictionary(
    name: str, entries: Sequence[Pronunciation] | str, *, dictionary_id: str | None = None
) -> Request[ListedDictionary]:
    """Makes one, or the next version of that id, of entries or a document of PLS 1.0. An entry has
    a `grapheme`, and a `phoneme` or an `alias`."""
    body = {"name": name, "pls" if isinstance(entries, str) else "entries": entries}
    method, path = ("PUT", f"/{dictionary_id}") if dictionary_id else ("POST", "")
    return Request(method, f"/pronunciations{path}", {"json": body})


def _delete_dictionary(dictionary_id: str) -> Request[Done]:
    """Deletes one with its versions."""
    return Request("DELETE", f"/pronunciations/{dictionary_id}")


def _transcribe(audio: Audio, **form: Unpack[TranscriptionFields]) -> Request[TranscriptionResult]:
    """The text of a recording, with the times of words or the speakers if they are asked for."""
    return Request("POST", "/stt", {"data": form, "files": {"audio": _file(audio)}})


def _translate(audio: Audio, *, prompt: str | None = None) -> Request[str]:
    """The English text of a recording in any language, from a model that can translate."""
    upload = {"data": given(prompt=prompt, response_format="text"), "files": {"file": _file(audio)}}
    return Request("POST", "/openai/v1/audio/translations", upload, as_text)


def _chat(
    messages: str | Sequence[Mapping[str, Any]], *, model: str | None = None, **fields: Any
) -> Request[ChatCompletion]:
    """The answer to messages, or to one of a user. `fields` are more of `POST
    /v1/chat/completions`."""
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    body = {**given(messages=said, model=model), "stream": False, **fields}
    return Request("POST", "/v1/chat/completions", {"json": body})


def _stream_chat(
    messages: str | Sequence[Mapping[str, Any]], *, model: str | None = None, **fields: Any
) -> Request[ChatCompletion]:
    """The events of an answer while it is made, as docs/chat.md has them."""
    return _chat(messages, model=model, **{**fields, "stream": True})


def _correct(text: str, **fields: Any) -> Request[ChatCompletion]:
    """The corrected text, in `choices[0].message.content`, and what was changed, in `correction`.
    `fields` are such as `style`."""
    body = {"text": text, "stream": False, **fields}
    return Request("POST", "/v1/chat/completions", {"json": body})


def _default_voices() -> Request[DefaultVoices]:
    """The voices of the service."""
    return Request("GET", "/default-voices")


def _voices(*, page: int = 1, limit: int = 20) -> Request[Page_CustomVoice_]:
    """The voices of the workspace."""
    return Request("GET", "/voices", {"params": {"page": page, "limit": limit}})


def _voice(voice_id: str) -> Request[CustomVoice]:
    """One voice of the workspace, with its status and progress."""
    return Request("GET", f"/voices/{voice_id}")


def _create_voice(name: str, recordings: Sequence[Audio], **fields: str) -> Request[CustomVoice]:
    """Begins to make a voice of recordings of one speaker; `voice` tells how far it is. `fields`
    are such as `consent` and `language`."""
    files = [("files", _file(one)) for one in recordings]
    return Request("POST", "/voices", {"data": {"name": name, **fields}, "files": files})


def _delete_voice(voice_id: str) -> Request[Done]:
    """Deletes a voice and its recordings."""
    return Request("DELETE", f"/voices/{voice_id}")


def _models() -> Request[ModelListing]:
    """The models that the service runs."""
    return Request("GET", "/models")


def _usage(
    *, first: str | None = None, last: str | None = None, by: str | None = None
) -> Request[Usage]:
    """Usage and cost by day (YYYY-MM-DD, in UTC), and `by="key"`; the credit that is left."""
    asked = given(**{"from": first, "to": last, "by": by})
    return Request("GET", "/billing/usage", {"params": asked})


def _create_token(**fields: Any) -> Request[BrowserToken]:
    """A token of minutes for a browser, so that no key stands in a page."""
    return Request("POST", "/auth/tokens", {"json": fields})


class _Operations:
    """The methods of both clients. They raise ServiceError, and httpx.HTTPError without service."""

    _connect: Callable[..., Any]  # makes the client of httpx

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        retries: int = 2,
        on_response: Callable[[httpx.Response], Any] | None = None,
    ) -> None:
        """The address and the key are ANTIPHON_URL and ANTIPHON_KEY by default. `on_response` gets
        each response before its body, for headers such as `X-Unread`."""
        self.url = (url or os.environ.get("ANTIPHON_URL") or DEFAULT_URL).rstrip("/")
        self.key = key or os.environ.get("ANTIPHON_KEY")
        self.retries = retries  # of requests that the service could not take, or not answer
        headers = {"User-Agent": USER_AGENT}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        # A proxy of the environment would look for a service on its own machine.
        proxied = not is_local(self.url)
        self._http = self._connect(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT,
            trust_env=proxied,
            event_hooks={"response": [on_response] if on_response else []},
        )

    request = operation(_request)
    speak = operation(_speak)
    stream_speech = streamed(_speak, bytes)
    speak_script = operation(_speak_script)
    explain = operation(_explain)
    dictionaries = operation(_dictionaries)
    dictionary = operation(_dictionary)
    export_dictionary = operation(_export_dictionary)
    save_dictionary = operation(_save_dictionary)
    delete_dictionary = operation(_delete_dictionary)
    transcribe = operation(_transcribe)
    translate = operation(_translate)
    chat = operation(_chat)
    stream_chat = streamed(_stream_chat, _event)
    correct = operation(_correct)
    default_voices = operation(_default_voices)
    voices = operation(_voices)
    voice = operation(_voice)
    create_voice = operation(_create_voice)
    delete_voice = operation(_delete_voice)
    models = operation(_models)
    usage = operation(_usage)
    create_token = operation(_create_token)

    def _wait_s(self, attempt: int, failure: ServiceError | httpx.TransportError) -> float:
        """Before the next attempt. Raises the `failure` after the last, or if it would stay."""
        wait_s: float | None = 0.5 * 2**attempt
        if isinstance(failure, ServiceError):
            wait_s = wait_s if failure.retry_after_s is None else failure.retry_after_s
            wait_s = wait_s if failure.status in AGAIN else None
        if attempt >= self.retries or wait_s is None or wait_s > MOST_WAIT_S:
            raise failure
        return wait_s


def _error(answer: httpx.Response) -> ServiceError:
    return error_of(answer.content, answer.status_code, answer.headers.get("Retry-After"))


class Antiphon(_Operations):
    """A client that waits. It closes its connections at the end of a `with`, or by `close`."""

    _connect = httpx.Client
    _http: httpx.Client

    def send(self, request: Request[T]) -> T:
        sent, attempt = self._http.build_request(**request.sent_as()), 0
        while True:
            failure: ServiceError | httpx.TransportError
            try:
                answer = self._http.send(sent)
                if answer.is_success:
                    return request.read(answer)
                failure = _error(answer)
            except httpx.TransportError as error:
                failure = error
            time.sleep(self._wait_s(attempt, failure))
            attempt += 1

    def stream(self, request: Request[Any], read: Callable[[Any], T | None]) -> Iterator[T]:
        with self._http.stream(request.method, request.path, **request.options) as answer:
            if answer.is_error:
                answer.read()
                raise _error(answer)
            pieces = answer.iter_bytes() if request.read is _bytes else answer.iter_lines()
            yield from (made for one in pieces if (made := read(one)) is not None)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAntiphon(_Operations):
    """A client for asyncio, with the sockets. It closes at the end of an `async with`."""

    _connect = httpx.AsyncClient
    _http: httpx.AsyncClient

    async def send(self, request: Request[T]) -> T:
        sent, attempt = self._http.build_request(**request.sent_as()), 0
        while True:
            failure: ServiceError | httpx.TransportError
            try:
                answer = await self._http.send(sent)
                if answer.is_success:
                    return request.read(answer)
                failure = _error(answer)
            except httpx.TransportError as error:
                failure = error
            await asyncio.sleep(self._wait_s(attempt, failure))
            attempt += 1

    async def stream(
        self, request: Request[Any], read: Callable[[Any], T | None]
    ) -> AsyncIterator[T]:
        async with self._http.stream(request.method, request.path, **request.options) as answer:
            if answer.is_error:
                await answer.aread()
                raise _error(answer)
            pieces: AsyncIterator[Any] = (
                answer.aiter_bytes() if request.read is _bytes else answer.aiter_lines()
            )
            async for one in pieces:
                if (made := read(one)) is not None:
                    yield made

    def listen(
        self,
        audio: AsyncIterable[bytes],
        *,
        sample_rate: int = 16_000,
        languages: Sequence[str] | None = None,
        interim_ms: int | None = None,
        **config: Any,
    ) -> AsyncIterator[Message]:
        """The events of `/ws/stt` for 16-bit mono samples: those of type `transcription` have the
        text, and `is_final`. `config` is more of `start`, as `keyterms`. Ends after the audio."""
        settings = {"continuous_mode": True, "interim_results_frequency": interim_ms, **config}
        start = {"type": "start", "languages": languages, "config": settings}
        return listen(self._address("/ws/stt"), audio, sample_rate, start)

    def speak_live(
        self, texts: AsyncIterable[str], *, voice_id: str, sample_rate: int = 24_000, **context: Any
    ) -> AsyncIterator[bytes]:
        """16-bit mono samples of a text that is still being written, as by a language model: each
        sentence or document is spoken when it is whole. `context` is more of `create_context`."""
        audio = {"audio_encoding": "LINEAR16", "sample_rate_hertz": sample_rate}
        made = {"voice_id": voice_id, "audio_config": audio, **context}
        return speak_live(self._address("/ws/tts"), texts, made)

    def _address(self, path: str) -> Address:
        return Address(self.url + path, self.key, self.retries)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
