"""`Idempotency-Key`: a repeated POST gets the response of the first one."""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable, Coroutine, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from api.http.bodies import MAX_JSON_BYTES, body_chunks
from api.http.context import context_of
from api.http.errors import CLOSE, ApiError
from api.http.ignored_fields import HEADER, SEPARATOR, note_ignored
from api.http.uploads import multipart_boundary
from pipelines.accounts.authentication import Principal
from pipelines.billing.idempotency import MAX_KEPT_BYTES, Claim, IdempotencyStore, KeptAnswer
from pipelines.errors import StorageUnavailable
from pipelines.temporary_files import TemporaryFile
from telemetry import metrics

MAX_KEY_LENGTH = 255
MAX_PATH_LENGTH = 200
RELEASE_S = 1.0  # a failed answer waits no longer for a database that hangs
MAX_FORM_BYTES = 600 * 2**20  # above the limit of every route

_KEY = re.compile(r"[\x21-\x7e][\x20-\x7e]*")
# An answer with status 200 that reports an error, in the form of any API, is not stored: like any
# failed request, it may be repeated.
_FAILED_LINE = re.compile(
    rb'^(?:data: )?\{(?:"type": ?"(?:error|response\.failed)"|"error": ?\{|"detail": ?[\[{]'
    rb'|"jsonrpc":.*"(?:error": ?\{|isError": ?true))',
    re.MULTILINE,
)
_NOT_KEPT_HEADERS = frozenset({b"content-length", b"date", b"connection"})

MISMATCH = "Idempotency-Key: was first used with another body or API key"

Handle = Callable[[Request], Coroutine[Any, Any, Response]]


async def answer_once(
    request: Request,
    store: IdempotencyStore,
    principal: Principal,
    handle: Handle,
    keeps_body: bool,
) -> Response:
    """Returns the response of `handle`, or the stored response to the same key.

    Only successful responses are stored, and their bodies only if `keeps_body`; a failed request
    runs again. A request with a key runs to its end even if the client disconnects, so that a retry
    gets its response. Raises RequestRunning, AnswerNotKept, ApiError (validation_error or
    idempotency_mismatch), or what `handle` raises.
    """
    key = request.headers["idempotency-key"]
    if not _KEY.fullmatch(key) or len(key) > MAX_KEY_LENGTH:
        message = f"Idempotency-Key: 1 to {MAX_KEY_LENGTH} visible ASCII characters"
        raise ApiError("validation_error", message)
    if principal.is_visitor:  # a visitor must not use up keys that a server may send later
        key = hashlib.sha256(f"visitor {key}".encode()).hexdigest()
    body = _Body(request, principal, store.new_digest())
    claim = await store.claim(principal.workspace_id, _path_of(request), key)
    context = context_of(request)
    context.turn.leave()  # the body may arrive slowly
    if not isinstance(claim, Claim):
        await body.read_rest()
        await context.turn.take()  # replaying is work of this process
        return _replay(request, await store.open(claim, body.digest()))
    context.operation.name = claim.operation
    body.claim = claim
    try:
        answer = await handle(Request(request.scope, body.receive))
        if answer.status_code < 400:
            await body.read_rest()
    except BaseException:  # a cancelled request releases its key too
        await claim.release()
        raise
    return _RecordedAnswer(answer, claim, body, keeps_body)


def _path_of(request: Request) -> str:
    """Returns the path to store: a digest if it is too long or has unprintable characters."""
    path: str = request.scope["path"]
    if len(path) <= MAX_PATH_LENGTH and path.isascii() and path.isprintable():
        return path
    return f"sha256:{hashlib.sha256(path.encode()).hexdigest()}"


def _replay(request: Request, stored: KeptAnswer | None) -> Response:
    if stored is None:
        raise ApiError("idempotency_mismatch", MISMATCH)
    metrics.idempotent_replays.inc()
    replayed = StreamingResponse(stored.body, stored.status, {"Content-Length": str(stored.size)})
    for name, value in stored.headers:
        if name == HEADER:  # a strict request raises instead of replaying it
            note_ignored(request, map(unquote, value.split(SEPARATOR)))
        else:
            replayed.headers.append(name, value)
    replayed.headers["Idempotency-Replayed"] = "true"
    return replayed


class _Body:
    """Body of a request, digested on its way to the route. The claim is bound to the digest before
    the route gets the last part, hence before any charge. After the last part, `receive` waits
    forever, so it never reports a disconnect."""

    def __init__(self, request: Request, principal: Principal, digest: hmac.HMAC) -> None:
        self._scope, self._receive = request.scope, request.receive
        self._digest = digest
        # Another credential gets no stored answer: a weaker key of the workspace, or a browser
        # token of the same key, must not see its contents.
        credential = principal.actor.encode() + (principal.secret or b"")
        self._digest.update(credential + f"\n{request.url.query}\n".encode())
        boundary = multipart_boundary(request)
        self._delimiter = b"\r\n--" + boundary if boundary else b""
        self._held = b"\r\n"  # possible start of a delimiter, or the line break before the first
        self._bytes = 0
        self._ended = False
        self.claim: Claim | None = None  # None for a replay

    async def receive(self) -> Message:
        """Receives the next part. Raises ApiError(idempotency_mismatch) or DatabaseUnavailable."""
        if self._ended:
            await asyncio.Event().wait()
        message = await self._receive()
        if message["type"] == "http.request":
            self._take(message.get("body", b""))
            self._ended = not message.get("more_body", False)
            if self._ended and self.claim is not None:
                if not await self.claim.bind(self.digest()):
                    raise ApiError("idempotency_mismatch", MISMATCH)
        return message

    async def read_rest(self) -> None:
        """Reads what the route did not read. Raises ApiError or ClientDisconnect."""
        if self._ended:
            return
        request = Request(self._scope, self.receive)
        is_form = multipart_boundary(request) is not None
        most = MAX_FORM_BYTES if is_form else MAX_JSON_BYTES
        async for _ in body_chunks(request, is_upload=is_form):
            if self._bytes > most:
                raise ApiError("file_too_large", "the body is too large", headers=CLOSE)

    def digest(self) -> bytes:
        """Returns the digest, once the whole body was read."""
        self._digest.update(self._held)
        self._held = b""
        return self._digest.digest()

    def _take(self, data: bytes) -> None:
        self._bytes += len(data)
        if not self._delimiter:
            self._digest.update(data)
            return
        # Clients generate a new boundary for each attempt, so it is not digested. Only the first
        # byte of a delimiter is CR, so the search is linear for every boundary and body.
        data = self._held + data
        last = data.rfind(self._delimiter)
        rest = data[last + len(self._delimiter) :] if last >= 0 else data
        self._held = rest[max(len(rest) - len(self._delimiter) + 1, 0) :]
        whole = data[: len(data) - len(self._held)]
        self._digest.update(whole.replace(self._delimiter, b"\r\n--"))


@dataclass(eq=False, repr=False)
class _RecordedAnswer(Response):
    """Response that is stored or, if it failed, releases its key before its last part is sent."""

    _answer: Response
    _claim: Claim
    _body: _Body
    _keeps_body: bool
    _ended: bool = False
    _status: int = 0
    _kept_headers: list[list[str]] = field(default_factory=list)
    _ignored: Iterable[str] = ()  # names of the request's ignored fields
    _waiting: Message | None = None  # the start, held until the first part of the body
    _sent: TemporaryFile = field(default_factory=TemporaryFile)  # the body so far
    _bytes: int = 0
    _length: int | None = None  # declared Content-Length
    _failed: bool = False
    _client_left: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._ignored = context_of(scope).ignored
        try:
            with closing(self._sent):
                await self._answer(scope, self._body.receive, partial(self._record, send))
        finally:
            if not self._ended:
                await self._claim.release()

    async def _record(self, send: Send, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._waiting = message
            self._status = message["status"]
            self._failed = self._status >= 400
            declared = Headers(raw=message["headers"]).get("content-length")
            self._length = None if declared is None else int(declared)
            # Copied now, since the headers that middleware adds belong to a single response.
            self._kept_headers = [
                [name.decode("latin-1"), value.decode("latin-1")]
                for name, value in message["headers"]
                if name.lower() not in _NOT_KEPT_HEADERS
            ]
            if self._ignored:
                self._kept_headers.append([HEADER, SEPARATOR.join(self._ignored)])
            return
        if message["type"] == "http.response.body":
            self._take(message.get("body", b""))
            # A client that knows the length does not wait for the end, and may repeat the request.
            is_whole = not message.get("more_body", False) or self._bytes == self._length
            if is_whole and not self._ended:
                await self._end()
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            await self._pass_on(send, waiting)
        await self._pass_on(send, message)

    async def _pass_on(self, send: Send, message: Message) -> None:
        if self._client_left:
            return
        try:
            await send(message)
        except OSError:  # the answer is still recorded
            self._client_left = True

    def _take(self, part: bytes) -> None:
        self._failed = self._failed or _FAILED_LINE.search(part) is not None
        self._bytes += len(part)
        if self._bytes > MAX_KEPT_BYTES:
            self._keeps_body = False
        if self._keeps_body:
            try:
                self._sent.write(part)
            except StorageUnavailable:  # the work is done, so the answer is still sent
                self._keeps_body = False

    async def _end(self) -> None:
        self._ended = True
        if self._failed:  # a client may repeat the request as soon as it has the last part
            with suppress(TimeoutError):  # the release goes on
                async with asyncio.timeout(RELEASE_S):
                    await self._claim.release()
            return
        body = self._sent if self._keeps_body else None
        await self._claim.finish(self._status, self._kept_headers, body)
