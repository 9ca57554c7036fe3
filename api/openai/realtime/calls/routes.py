"""Realtime calls over WebRTC: an SDP offer by HTTP, then events and audio on a peer connection."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.responses import Response

from api.http.bodies import body_chunks, parse_json
from api.http.context import context_of
from api.http.errors import CLOSE, ApiError, InvalidField
from api.http.routing import PrincipalDep, credential_of, make_router, require_scopes, services_of
from api.http.uploads import UploadLimits, form_schema, receive_form
from api.openai.realtime.calls.conversation import CallConversation, CallTransport
from api.openai.realtime.calls.registry import Call
from api.openai.realtime.client_secrets import SCOPES, checked_session, kind_of
from api.openai.realtime.server_events import new_id
from api.services import InfrastructureServices
from api.sockets.kernel.routes import registered
from api.sockets.kernel.session import SecretSession, SocketSession
from pipelines.limits.limits import Lease
from pipelines.tasks import wait_within

if TYPE_CHECKING:
    from pipelines.audio.webrtc.peer import Peer

logger = logging.getLogger(__name__)

PATH = "/openai/v1/realtime/calls"
CONNECTING_S = 15.0  # from the answer until the data channel is open
MAX_SDP_BYTES = 32_768
MAX_SESSION_BYTES = 65_536
LIMITS = UploadLimits(
    max_files=2, max_file_bytes=MAX_SESSION_BYTES, file_fields=frozenset({"sdp", "session"})
)
FORM = form_schema("sdp", files={"type": "string", "description": "SDP offer."})
_CONTENT: dict[str, Any] = FORM["requestBody"]["content"]
_CONTENT["multipart/form-data"]["schema"]["properties"]["session"] = {
    "type": "object",
    "description": "The session, with the fields of a client secret's `session`.",
}
_CONTENT["application/sdp"] = {"schema": {"type": "string", "description": "SDP offer."}}

router = make_router(
    "voice agents", scope="any", visitors=True, takes_secrets=True, shows_secret=True
)


@router.post(
    PATH,
    status_code=201,
    response_class=Response,
    responses={201: {"description": "SDP answer", "content": {"application/sdp": {}}}},
    openapi_extra=FORM,
    summary="Create a call over WebRTC",
)
async def create_call(request: Request, principal: PrincipalDep) -> Response:
    """Begins a voice agent session on a peer connection with Opus audio and the data channel
    `oai-events`. The header `Location` has OpenAI's path, `/v1/realtime/calls/{id}`; clients need
    only the id in it.

    Takes a key, a browser token or a client secret, whose session applies. Requires the scopes
    `stt`, `tts` and `chat`, or only `stt` for a transcription session.
    """
    started = time.perf_counter()
    services = services_of(request)
    infrastructure = services.infrastructure
    sockets = infrastructure.sockets
    offer, options = await _read(request)
    secret_session = await services.platform.client_secrets.configuration(principal)
    kind = kind_of(request.query_params, secret_session or options or None)
    require_scopes(sockets.authenticator, principal, SCOPES[kind], visitors=True)
    model = request.query_params.get("model")
    takes_query = secret_session is None and kind == "realtime" and model
    chosen = {"model": model, **options} if takes_query else options
    await checked_session(kind, chosen, principal.workspace_id, services.speech)
    if sockets.draining:
        raise ApiError("unavailable", "this server is stopping")
    lease = await sockets.admit(principal, refused_as="call")
    try:
        peer = await infrastructure.calls.open_peer()
        answer = await _answer(peer, offer, sockets.limits.handshake_s)
    except BaseException:
        await lease.release()
        raise
    call = Call(new_id("rtc"), principal, credential_of(request), peer)

    def open_session() -> SocketSession:
        context_of(request).client_left = peer.lost
        return SocketSession(
            CallTransport(request.scope, peer),
            principal,
            call.credential,
            SCOPES[kind],
            sockets.limits,
            lambda session: CallConversation(session, services, peer, kind, options),
            secret_session,
        )

    infrastructure.calls.add(call)
    work = _serve(call, lease, infrastructure, open_session, started)
    infrastructure.calls.tasks.start(work, call.id)
    location = f"/v1/realtime/calls/{call.id}"
    return Response(answer, 201, {"Location": location}, media_type="application/sdp")


@router.post(f"{PATH}/{{call_id}}/hangup", response_class=Response, summary="End a call")
async def hang_up(call_id: str, request: Request, principal: PrincipalDep) -> Response:
    """Ends a call of the workspace. A client secret or browser token ends only its own calls.

    A call is known only to the gateway that answered it.
    """
    calls = services_of(request).infrastructure.calls
    calls.find(call_id, principal, credential_of(request)).hang_up()
    return Response()


async def _read(request: Request) -> tuple[str, SecretSession]:
    """Reads the SDP offer, and the session if the body is a form with one. Raises ApiError."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    parts: dict[str, bytes] = {}
    if media_type == "application/sdp":
        body = bytearray()
        async for chunk in body_chunks(request):
            body += chunk
            if len(body) > MAX_SDP_BYTES:
                break
        parts["sdp"] = bytes(body)
    elif media_type == "multipart/form-data":
        async with receive_form(request, LIMITS) as form:
            for file in form.files:
                parts[file.field] = await asyncio.to_thread(file.path.read_bytes)
    else:
        message = "send the offer as application/sdp, or a form with sdp and session"
        raise ApiError("unsupported_media_type", message)
    if len(parts.get("sdp", b"")) > MAX_SDP_BYTES:
        message = f"the offer is larger than {MAX_SDP_BYTES} bytes"
        raise ApiError("file_too_large", message, headers=CLOSE)
    try:
        offer = parts.get("sdp", b"").decode()
    except UnicodeDecodeError:
        raise InvalidField("sdp", "the offer is not UTF-8") from None
    options = parse_json(parts["session"]) if "session" in parts else {}
    if not isinstance(options, dict):
        raise InvalidField("session", "must be an object")
    return offer, options


async def _answer(peer: "Peer", offer: str, within_s: float) -> str:
    """Returns a peer's answer to an offer. Closes the peer, and raises, if there is none."""
    try:
        async with asyncio.timeout(within_s):
            return await peer.answer(offer)
    except BaseException as error:
        await peer.close()
        if isinstance(error, TimeoutError):
            raise ApiError("unavailable", "the call could not be answered in time") from None
        raise


async def _serve(
    call: Call,
    lease: Lease,
    infrastructure: InfrastructureServices,
    open_session: Callable[[], SocketSession],
    started: float,
) -> None:
    """Runs a call until it ends. A call that does not connect in time is free."""
    sockets = infrastructure.sockets
    try:
        await wait_within(call.peer.opened, CONNECTING_S)
        if call.peer.lost.is_set() or not call.peer.opened.is_set() or sockets.draining:
            logger.info("call_not_connected", extra={"call": call.id})
            return
        call.session = session = open_session()
        work = _run(session, call.peer)
        await registered(sockets, session, work, service="call", path=PATH, started=started)
    finally:
        infrastructure.calls.discard(call)
        try:
            await call.peer.close()
        finally:
            await lease.release()


async def _run(session: SocketSession, peer: "Peer") -> None:
    """Runs a session, and then closes its peer connection, before the service may stop."""
    try:
        await session.run()
    finally:
        await peer.close()
