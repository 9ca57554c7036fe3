"""`Antiphon` and `AsyncAntiphon`, with the same methods: blocking, and for asyncio."""

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
from inspect import signature
from pathlib import Path
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)
from uuid import uuid4

import httpx

from antiphon.errors import ServiceError, error_of
from antiphon.live import USER_AGENT, Address, Message, is_local, listen, speak_live
from antiphon.types import (
    BrowserToken,
    ChatCompletion,
    ChatCompletionBody,
    CustomVoice,
    DefaultVoices,
    Done,
    ExplainBody,
    Explanation,
    ListedDictionary,
    ModelListing,
    NewBrowserToken,
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
    VoiceFields,
)

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = httpx.Timeout(10.0, read=600.0, write=600.0)  # seconds; a model may be loading
RETRIED_STATUSES = (429, 502, 503, 504)
RUNNING_RETRIES = 6  # within half a minute
MAX_RETRY_AFTER_S = 30.0  # a longer wait is left to the caller

Audio = bytes | str | Path | tuple[str, bytes]  # a file, or its content with or without a name
Script = Sequence[ScriptTurn]
P = ParamSpec("P")
T = TypeVar("T")
Text_co = TypeVar("Text_co", covariant=True)
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request that both clients can send, and how to read its response."""

    method: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of httpx
    read: Callable[[httpx.Response], T] = httpx.Response.json

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `httpx.Client.build_request`.

        A POST gets an `Idempotency-Key`, so that the service executes a repeated request once.
        """
        headers = {"Idempotency-Key": uuid4().hex} if self.method == "POST" else {}
        return {"method": self.method, "url": self.path, "headers": headers, **self.options}


def checked(build: Callable[P, T], method: str) -> Callable[P, T]:
    """Make the function behind `method` raise TypeError, with the name of the method, for arguments
    that it does not take, including keywords that its typed options lack."""
    usual = signature(build)
    annotations = [parameter.annotation for parameter in usual.parameters.values()]
    bodies = [get_args(option)[0] for option in annotations if get_origin(option) is Unpack]
    names = {name for body in bodies for name in (*usual.parameters, *body.__annotations__)}

    @wraps(build)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            usual.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method}(): {error}; options are given by name") from None
        for name in kwargs.keys() - names if bodies else ():
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
        return build(*args, **kwargs)

    return call


class operation(Generic[P, T]):  # used as a method
    """A method of either client that sends the request which `build` returns."""

    def __init__(self, build: Callable[P, Request[T]]) -> None:
        self._build = build

    def __set_name__(self, owner: type, name: str) -> None:
        self._build = checked(self._build, name)

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
    """A method of either client that yields the response to a request as it arrives.

    `read` converts each line of the response, or each piece if the response is binary. A line for
    which it returns None is skipped.
    """

    def __init__(self, build: Callable[P, Request[Any]], read: Callable[[Any], T | None]) -> None:
        self._build = build
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._build = checked(self._build, name)

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
    """Return the fields that are not None, so that a body lacks the options that were not used."""
    return {name: value for name, value in fields.items() if value is not None}


def _file(audio: Audio) -> tuple[str, bytes]:
    """Return the name and the content of a file, read at once so that a retry can send it again."""
    if isinstance(audio, str | Path):
        return Path(audio).name, Path(audio).read_bytes()
    if isinstance(audio, bytes):
        return "audio", audio
    if isinstance(audio, tuple):
        return audio
    raise TypeError(f"audio: a path, bytes, or a name with bytes, not {type(audio).__name__}")


def _bytes(answer: httpx.Response) -> bytes:
    data = answer.content
    return with_wav_length(data, len(data)) if data.startswith(b"RIFF") else data


def with_wav_length(data: bytes, size: int) -> bytes:
    """Return the beginning of a WAV file of `size` bytes with its length in the header, which was
    sent before the length was known."""
    start = 44 + int.from_bytes(data[40:44], "little") if data[36:40] == b"LIST" else 36  # tags
    at = data.index(b"data", start) + 4
    riff, samples = (count.to_bytes(4, "little") for count in (size - 8, size - at - 4))
    return data[:4] + riff + data[8:at] + samples + data[at + 4 :]


def _synthesised(answer: httpx.Response) -> bytes:
    return base64.b64decode(answer.json()["audio_base64"])


def as_text(answer: httpx.Response) -> str:
    """Return the body of a response that is not JSON."""
    return answer.text


def as_event(line: str) -> dict[str, Any] | None:
    """Return the event in a line of Server-Sent Events, if any.

    Raises ServiceError if the event reports a failure.
    """
    if not line.startswith("data: ") or line == "data: [DONE]":
        return None
    event: dict[str, Any] = json.loads(line.removeprefix("data: "))
    if event.get("type") == "error" or isinstance(event.get("error"), dict):
        raise error_of(json.dumps(event).encode(), 0)
    return event


def _request(method: str, path: str, **options: Any) -> Request[Any]:
    """Send any other request of the API, such as `request("GET", "/audit", params={"page": 2})`."""
    return Request(method, path, options)


def _speak(text: str, **options: Unpack[OpenAISpeechBody]) -> Request[bytes]:
    """Speak a text or an SSML document, as mp3, wav, flac, opus, aac, or pcm at 24 kHz.

    `voice` is a name or an id; by default, the language of the text decides. `speak` returns the
    whole file, and `stream_speech` yields the same bytes while the speech is synthesised.
    """
    body = given(input=text, **options)
    return Request("POST", "/openai/v1/audio/speech", {"json": body}, _bytes)


def _speak_script(script: Script, **options: Unpack[SynthesisBody]) -> Request[bytes]:
    """Speak the lines of several speakers, and return the audio file (mp3 by default)."""
    body = {"script": script, **options}
    return Request("POST", "/tts-synthesize", {"json": body}, _synthesised)


def _explain(text: str | Script, **options: Unpack[ExplainBody]) -> Request[Explanation]:
    """Show how a text or a script would be spoken, free of charge: its sentences in words, their
    phonemes, the price (USD) and the duration (s)."""
    body = {"text" if isinstance(text, str) else "script": text, **options}
    return Request("POST", "/tts/explain", {"json": body})


def _dictionaries() -> Request[Page_ListedDictionary_]:
    """List the pronunciation dictionaries of the workspace, which has at most 20."""
    return Request("GET", "/pronunciations")


def _dictionary(dictionary_id: str, *, version: int | None = None) -> Request[ShownDictionary]:
    """Get a dictionary with its entries, by default in its newest version."""
    return Request("GET", f"/pronunciations/{dictionary_id}", {"params": given(version=version)})


def _export_dictionary(dictionary_id: str, *, version: int | None = None) -> Request[str]:
    """Get a dictionary as a PLS 1.0 document."""
    query = given(version=version, format="pls")
    return Request("GET", f"/pronunciations/{dictionary_id}", {"params": query}, as_text)


def _save_dictionary(
    name: str, entries: Sequence[Pronunciation] | str, *, dictionary_id: str | None = None
) -> Request[ListedDictionary]:
    """Create a dictionary, or with `dictionary_id` a new version of it, from entries or a PLS 1.0
    document. An entry has a `grapheme`, and a `phoneme` or an `alias`."""
    body = {"name": name, "pls" if isinstance(entries, str) else "entries": entries}
    method, path = ("PUT", f"/{dictionary_id}") if dictionary_id else ("POST", "")
    return Request(method, f"/pronunciations{path}", {"json": body})


def _delete_dictionary(dictionary_id: str) -> Request[Done]:
    """Delete a dictionary with all its versions."""
    return Request("DELETE", f"/pronunciations/{dictionary_id}")


def _transcribe(
    audio: Audio, *, response_format: str = "json", **form: Unpack[TranscriptionFields]
) -> Request[Any]:
    """Transcribe a recording; if requested, with word times or speakers.

    With `response_format`, the result is the text of the subtitles (srt, vtt), or plain text.
    """
    upload = {
        "data": {**form, "response_format": response_format},
        "files": {"audio": _file(audio)},
    }
    read = httpx.Response.json if response_format == "json" else as_text
    return Request("POST", "/stt", upload, read)


class _Transcribe(Protocol[Text_co, Result_co]):
    """The method `transcribe`, which returns text or an object, depending on `response_format`."""

    @overload
    def __call__(self, audio: Audio, **form: Unpack[TranscriptionFields]) -> Result_co: ...
    @overload
    def __call__(
        self,
        audio: Audio,
        *,
        response_format: Literal["text", "srt", "vtt"],
        **form: Unpack[TranscriptionFields],
    ) -> Text_co: ...


def _translate(audio: Audio, *, prompt: str | None = None) -> Request[str]:
    """Translate speech in any language into English text, if the recogniser can translate."""
    upload = {"data": given(prompt=prompt, response_format="text"), "files": {"file": _file(audio)}}
    return Request("POST", "/openai/v1/audio/translations", upload, as_text)


def _chat(
    messages: str | Sequence[Mapping[str, Any]], **fields: Unpack[ChatCompletionBody]
) -> Request[ChatCompletion]:
    """Answer messages, or the text of a single user message.

    `fields` are further fields of `POST /v1/chat/completions`, such as `model`.
    """
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    body = {**given(messages=turns, **fields), "stream": False}
    return Request("POST", "/v1/chat/completions", {"json": body})


def _stream_chat(
    messages: str | Sequence[Mapping[str, Any]], **fields: Unpack[ChatCompletionBody]
) -> Request[ChatCompletion]:
    """Stream the events of an answer while the model writes it; docs/chat.md describes them."""
    request = _chat(messages, **fields)
    request.options["json"]["stream"] = True
    return request


def _correct(text: str, **fields: Unpack[ChatCompletionBody]) -> Request[ChatCompletion]:
    """Correct a text.

    The corrected text is in `choices[0].message.content`, and the changes are in `correction`.
    `fields` are further fields of the request, such as `style`.
    """
    body = {"text": text, "stream": False, **fields}
    return Request("POST", "/v1/chat/completions", {"json": body})


def _default_voices() -> Request[DefaultVoices]:
    """List the voices of the service."""
    return Request("GET", "/default-voices")


def _voices(*, page: int = 1, limit: int = 20) -> Request[Page_CustomVoice_]:
    """List the custom voices of the workspace."""
    return Request("GET", "/voices", {"params": {"page": page, "limit": limit}})


def _voice(voice_id: str) -> Request[CustomVoice]:
    """Get a custom voice, with its status and progress."""
    return Request("GET", f"/voices/{voice_id}")


def _create_voice(
    name: str, recordings: Sequence[Audio], **fields: Unpack[VoiceFields]
) -> Request[CustomVoice]:
    """Start to create a voice from recordings of a single speaker; `voice` shows its progress.

    `fields` are further fields of the form, such as `consent` and `language`.
    """
    files = [("files", _file(recording)) for recording in recordings]
    return Request("POST", "/voices", {"data": {"name": name, **fields}, "files": files})


def _delete_voice(voice_id: str) -> Request[Done]:
    """Delete a voice and its recordings."""
    return Request("DELETE", f"/voices/{voice_id}")


def _models() -> Request[ModelListing]:
    """List the models that the service runs."""
    return Request("GET", "/models")


def _usage(
    *, first: str | None = None, last: str | None = None, by: str | None = None
) -> Request[Usage]:
    """Get usage and cost by day, with `by="key"` also by API key, and the remaining credit.

    `first` and `last` are dates in UTC (YYYY-MM-DD).
    """
    query = given(**{"from": first, "to": last, "by": by})
    return Request("GET", "/billing/usage", {"params": query})


def _create_token(**fields: Unpack[NewBrowserToken]) -> Request[BrowserToken]:
    """Create a token that is valid for minutes, so that a web page needs no API key."""
    return Request("POST", "/auth/tokens", {"json": fields})


class _Operations:
    """Methods of both clients. They raise ServiceError, or httpx.HTTPError if nothing responds."""

    _connect: Callable[..., Any]  # the client class of httpx

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        retries: int = 2,
        on_response: Callable[[httpx.Response], Any] | None = None,
    ) -> None:
        """Create a client of the service at `url`, with an API key or token as `key`.

        They default to ANTIPHON_URL and ANTIPHON_KEY. `on_response` receives each response before
        its body, for headers such as `X-Unread`.
        """
        self.url = (url or os.environ.get("ANTIPHON_URL") or DEFAULT_URL).rstrip("/")
        self.key = key or os.environ.get("ANTIPHON_KEY")
        self.retries = retries  # after a request that the service could not take or answer
        headers = {"User-Agent": USER_AGENT}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        # A proxy would look for a loopback address on its own machine.
        uses_proxy = not is_local(self.url)
        self._http = self._connect(
            base_url=self.url,
            headers=headers,
            timeout=TIMEOUT,
            trust_env=uses_proxy,
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
    translate = operation(_translate)
    chat = operation(_chat)
    stream_chat = streamed(_stream_chat, as_event)
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
        """Return the seconds to wait before the next attempt.

        Raises `failure` after the last attempt, or if a retry cannot help.
        """
        wait_s: float | None = 0.5 * 2**attempt
        most = self.retries
        if attempt and isinstance(failure, ServiceError) and failure.code == "idempotency_conflict":
            # The connection of an earlier attempt was lost, and the service still works on it.
            most = max(most, RUNNING_RETRIES)
        elif isinstance(failure, ServiceError):
            wait_s = wait_s if failure.retry_after_s is None else failure.retry_after_s
            wait_s = wait_s if failure.status in RETRIED_STATUSES else None
        if attempt >= most or wait_s is None or wait_s > MAX_RETRY_AFTER_S:
            raise failure
        return wait_s


def _error(answer: httpx.Response) -> ServiceError:
    return error_of(answer.content, answer.status_code, answer.headers.get("Retry-After"))


class Antiphon(_Operations):
    """A blocking client. `close`, or the end of a `with` block, closes its connections."""

    _connect = httpx.Client
    _http: httpx.Client

    transcribe = cast("_Transcribe[str, TranscriptionResult]", operation(_transcribe))

    def send(self, request: Request[T]) -> T:
        prepared = self._http.build_request(**request.arguments())
        attempt = 0
        while True:
            failure: ServiceError | httpx.TransportError
            try:
                answer = self._http.send(prepared)
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
            for piece in pieces:
                if (item := read(piece)) is not None:
                    yield item

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAntiphon(_Operations):
    """A client for asyncio, which also supports the sockets.

    `close`, or the end of an `async with` block, closes its connections.
    """

    _connect = httpx.AsyncClient
    _http: httpx.AsyncClient

    transcribe = cast(
        "_Transcribe[Awaitable[str], Awaitable[TranscriptionResult]]", operation(_transcribe)
    )

    async def send(self, request: Request[T]) -> T:
        prepared = self._http.build_request(**request.arguments())
        attempt = 0
        while True:
            failure: ServiceError | httpx.TransportError
            try:
                answer = await self._http.send(prepared)
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
            async for piece in pieces:
                if (item := read(piece)) is not None:
                    yield item

    def listen(
        self,
        audio: AsyncIterable[bytes],
        *,
        sample_rate: int = 16_000,
        languages: Sequence[str] | None = None,
        interim_ms: int | None = None,
        **config: Any,
    ) -> AsyncIterator[Message]:
        """Transcribe 16-bit mono samples live, and yield the events of `/ws/stt`.

        Events of type `transcription` have `text` and `is_final`. `config` are further fields of
        the `config` of `start`, such as `keyterms`.
        """
        settings = {"continuous_mode": True, "interim_results_frequency": interim_ms, **config}
        start = {"type": "start", "languages": languages, "config": settings}
        return listen(self._address("/ws/stt"), audio, sample_rate, start)

    def speak_live(
        self, texts: AsyncIterable[str], *, voice_id: str, sample_rate: int = 24_000, **context: Any
    ) -> AsyncIterator[bytes]:
        """Speak a text while it is being written, and yield 16-bit mono samples.

        Each sentence or SSML document is spoken as soon as it is complete. `context` are further
        fields of `create_context`.
        """
        audio = {"audio_encoding": "LINEAR16", "sample_rate_hertz": sample_rate}
        created = {"voice_id": voice_id, "audio_config": audio, **context}
        return speak_live(self._address("/ws/tts"), texts, created)

    def _address(self, path: str) -> Address:
        return Address(self.url + path, self.key, self.retries)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
