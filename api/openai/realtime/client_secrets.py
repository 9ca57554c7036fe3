"""Client secrets, which a server creates with its key for browsers that open Realtime sockets."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from api.http.bodies import RequestModel
from api.http.errors import ApiError
from api.http.routing import PlatformDep, PrincipalDep, SpeechDep, make_router, require_scopes
from api.openai.names import DEFAULT_AGENT
from api.openai.realtime.faults import RealtimeFault, not_one_of
from api.openai.realtime.session_object import (
    MAX_MODEL_NAME,
    RealtimeSession,
    Session,
    merged,
    new_session,
)
from api.services import SpeechServices
from api.sockets.kernel.session import SecretSession
from pipelines.accounts.authentication import Scope

router = make_router("voice agents", scope="any", shows_secret=True)

SessionKind: TypeAlias = Literal["realtime", "transcription"]
VOICE_FIELD = "session.audio.output.voice"
SCOPES: dict[SessionKind, tuple[Scope, ...]] = {
    "realtime": ("stt", "tts", "chat"),
    "transcription": ("stt",),
}


def kind_of(query: Mapping[str, str], secret_session: SecretSession | None) -> SessionKind:
    """Returns a session's type, from its secret or query. Raises ApiError(validation_error)."""
    if len(query.get("model", "")) > MAX_MODEL_NAME:
        message = f"model: at most {MAX_MODEL_NAME} characters"
        raise ApiError("validation_error", message, param="model")
    if secret_session is None:
        name = query.get("intent")
        field = "intent"
    else:
        name = secret_session.get("type")
        field = "session.type"
    for kind in SCOPES:
        if name in (None, kind):
            return kind
    raise ApiError("validation_error", not_one_of(name, SCOPES), param=field)


async def checked_session(
    kind: SessionKind, options: SecretSession, workspace_id: int, speech: SpeechServices
) -> Session:
    """Returns the session with these options. Raises ApiError, NotFound or EngineError for options
    that a socket would refuse, such as an unknown model or voice."""
    try:
        session = merged(new_session(kind), options)
    except RealtimeFault as fault:
        raise ApiError("validation_error", fault.message, param=fault.param) from None
    if isinstance(session, RealtimeSession):
        voice, names = session.audio.output.voice, speech.openai
        _, tier = await names.agent_model(session.model or DEFAULT_AGENT)
        await names.choose_voice(voice, tier, workspace_id, language="en", field=VOICE_FIELD)
    return session


class ExpiresAfter(RequestModel):
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=600, ge=10, le=7200)


class ClientSecretBody(RequestModel):
    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(
        default={"type": "realtime"},
        description="Session of type `realtime` or `transcription`, at most 64 KiB.",
    )


class CreatedClientSecret(BaseModel):
    value: str  # cannot be read again
    expires_at: int = Field(description="Unix time after which the secret opens no new session.")
    session: dict[str, Any]


@router.post("/openai/v1/realtime/client_secrets", summary="Create a client secret")
async def create_client_secret(
    body: ClientSecretBody, principal: PrincipalDep, platform: PlatformDep, speech: SpeechDep
) -> CreatedClientSecret:
    """Creates a credential for browsers and telephone calls. Until it expires, it opens any number
    of voice agent sockets with this session, and gives no other access.

    Requires the scopes `stt`, `tts` and `chat`, or only `stt` for a transcription session.
    When the key or token that created a secret ends, the secret and its live sessions end within
    5 s.
    """
    kind = kind_of({}, body.session)
    require_scopes(platform.accounts.authenticator, principal, SCOPES[kind], visitors=False)
    session = await checked_session(kind, body.session, principal.workspace_id, speech)
    secret = await platform.client_secrets.create(
        principal,
        SCOPES[kind],
        {**body.session, "type": kind},
        timedelta(seconds=body.expires_after.seconds),
    )
    return CreatedClientSecret(
        value=secret.value, expires_at=int(secret.expires_at.timestamp()), session=session.as_json()
    )
