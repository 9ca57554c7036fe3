"""Accounts: sign-up, login, sessions, the profile, the workspace, API keys and browser tokens."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, Strict
from starlette.requests import Request

from api.http.addresses import client_address, widest_network
from api.http.bodies import (
    NOT_BLANK,
    WHOLE,
    Done,
    Id,
    OneLine,
    Page,
    Paged,
    RequestModel,
    Shown,
)
from api.http.routing import PlatformDep, PrincipalDep, make_router, require_scopes
from api.services import PlatformServices
from db.database import utc_now
from pipelines.accounts.authentication import Principal, Scope
from pipelines.accounts.service import Origin
from pipelines.errors import InsufficientScope, InvalidRequest, NotFound, TooManyUnknownKeys

public = make_router("accounts", public=True)
account = make_router("accounts", scope="keys")
any_key = make_router("accounts", scope="any")
keys = make_router("keys", scope="keys", shows_secret=True)
tokens = make_router("keys", scope="any", shows_secret=True)
routers = (public, account, any_key, keys, tokens)


def _normal_email(text: str) -> str:
    """Normalises to lower case and IDNA, so that one address is one account."""
    try:
        # No e-mail is sent, so domains for tests are valid too.
        address = validate_email(text.strip(), check_deliverability=False, test_environment=True)
        return address.normalized.lower()
    except EmailNotValidError:
        raise ValueError("not an e-mail address") from None


Email = Annotated[
    str, Field(max_length=254, json_schema_extra={"format": "email"}), AfterValidator(_normal_email)
]
MIN_PASSWORD_CHARACTERS = 8
MAX_HISTORY_DAYS = 90
Password = Annotated[str, Field(min_length=MIN_PASSWORD_CHARACTERS, max_length=256)]


class SignUp(RequestModel):
    email: Email
    password: Password
    name: OneLine | None = None
    company: OneLine | None = None
    invite: Annotated[str, Field(max_length=100)] | None = Field(
        default=None, description="Invite code; required where sign-up is by invitation."
    )


class LogIn(RequestModel):
    email: Annotated[str, Field(max_length=254)]
    password: Annotated[str, Field(max_length=256)]


class Profile(RequestModel):
    name: OneLine | None = None
    company: OneLine | None = None


class SignedUpUser(Shown):
    id: Id
    email: str
    name: str
    created_at: datetime


class Session(Shown):
    user: SignedUpUser
    token: str  # JWT in place of an API key, valid for 24 hours, or for 30 days from a login link


class ProfileUser(Shown):
    id: Id
    email: str
    name: str
    company: str
    updated_at: datetime


@public.post("/auth/signup", status_code=201, summary="Create an account")
async def sign_up(body: SignUp, request: Request, platform: PlatformDep) -> Session:
    await platform.request_limits.count_sign_up(request)
    signed_in = await platform.accounts.sign_up(
        body.email,
        body.password,
        body.name or "",
        body.company or "",
        _origin(request),
        body.invite,
    )
    return Session.model_validate(signed_in)


@public.post("/auth/login", summary="Log in and get a token")
async def log_in(body: LogIn, request: Request, platform: PlatformDep) -> Session:
    try:
        email = _normal_email(body.email)
    except ValueError:
        email = ""  # no account: same answer and delay as for a wrong password
    origin = _origin(request)
    accounts = platform.accounts
    is_known = partial(accounts.knows_address, email, origin.address)
    async with platform.request_limits.counted_login(request, email, is_known):
        return Session.model_validate(await accounts.log_in(email, body.password, origin))


def _origin(request: Request) -> Origin:
    address = client_address(request)
    user_agent = request.headers.get("user-agent", "")
    return Origin(address=address, user_agent=user_agent, network=widest_network(address))


class LoginLink(RequestModel):
    token: Annotated[str, Field(min_length=1, max_length=100)]


@public.post("/auth/link", summary="Log in with the link of the machine's owner")
async def follow_link(body: LoginLink, request: Request, platform: PlatformDep) -> Session:
    """Logs in as the owner of a service that serves only its own machine. Elsewhere, returns 404.

    A link works once within 10 minutes, for programs on the machine of the service. The session
    lasts 30 days.
    """
    limits = platform.request_limits
    workspace_id = platform.plans.free_workspace_id
    if workspace_id is None or not limits.can_be_owner(request):
        raise NotFound("this service has no login link")
    if request.headers.get("origin") not in (None, f"http://{request.headers['host']}"):
        raise InsufficientScope("pages of this origin may not log in with a link")
    with limits.counted_lookup(request) as is_over:
        if is_over:
            raise TooManyUnknownKeys
        followed = await platform.accounts.follow_link(body.token, workspace_id, _origin(request))
        return Session.model_validate(followed)


class ChangePassword(RequestModel):
    current_password: Annotated[str, Field(max_length=256)]
    new_password: Password


class ShownSession(Shown):
    id: Id
    created_at: datetime
    last_used_at: datetime | None = Field(description="Time of the last request, to the minute.")
    address: str = Field(
        description="Client IP address at login; for IPv6 its /64 network. `this machine` for a "
        "login link."
    )
    user_agent: str
    current: bool = Field(description="True for the session of this request.")


class SessionList(Shown):
    sessions: list[ShownSession]


@account.put("/auth/password", summary="Change the password")
async def change_password(
    body: ChangePassword, request: Request, principal: PrincipalDep, platform: PlatformDep
) -> Done:
    """Requires a session token, not an API key. All other sessions end within 5 seconds."""
    await platform.request_limits.count_change(principal)
    async with platform.request_limits.counted_password(request, principal):
        await platform.accounts.change_password(
            principal, body.current_password, body.new_password, _origin(request).network
        )
    return Done(message="the password is changed, and all other sessions have ended")


@account.post("/auth/logout", summary="Log out")
async def log_out(principal: PrincipalDep, platform: PlatformDep) -> Done:
    """Revokes the token on every server within 5 seconds and closes its WebSockets."""
    await platform.accounts.log_out(principal)
    return Done(message="the session has ended")


@account.get("/auth/sessions", summary="List the user's sessions")
async def list_sessions(principal: PrincipalDep, platform: PlatformDep) -> SessionList:
    """Sessions come newest first. Each is a sign-up or login whose token is still valid."""
    current_id = principal.session_id
    sessions = [
        ShownSession.model_validate({**session.model_dump(), "current": session.id == current_id})
        for session in await platform.accounts.sessions(principal)
    ]
    return SessionList(sessions=sessions)


@account.delete("/auth/sessions", summary="End all other sessions")
async def end_other_sessions(principal: PrincipalDep, platform: PlatformDep) -> Done:
    """Keeps the session of this request. With an API key, all sessions end."""
    await platform.accounts.end_other_sessions(principal)
    return Done(message="all other sessions have ended")


@account.delete("/auth/sessions/{session_id}", summary="End a session")
async def end_session(session_id: str, principal: PrincipalDep, platform: PlatformDep) -> Done:
    """Revokes its token on every server within 5 seconds and closes its WebSockets."""
    try:
        identity = UUID(session_id)
    except ValueError:
        raise NotFound("no session has that id") from None
    await platform.accounts.end_session(principal, identity)
    return Done(message="the session has ended")


@account.get("/auth/profile", summary="Get the user's profile")
async def read_profile(principal: PrincipalDep, platform: PlatformDep) -> ProfileUser:
    return ProfileUser.model_validate(await platform.accounts.profile(principal))


@account.put("/auth/profile", summary="Change the user's profile")
async def update_profile(
    body: Profile, principal: PrincipalDep, platform: PlatformDep
) -> ProfileUser:
    await platform.request_limits.count_change(principal)
    user = await platform.accounts.update_profile(principal, body.name, body.company)
    return ProfileUser.model_validate(user)


class WorkspaceSettings(RequestModel):
    name: Annotated[OneLine, Field(min_length=1)] | None = None
    retention: Literal["standard", "zero"] | None = Field(
        default=None,
        description=(
            "With `zero`, no text or audio of new requests is stored: chats are not saved, "
            "event content is erased on delivery, and a request repeated with the same "
            "Idempotency-Key is refused instead of answered again."
        ),
    )
    speech_history_days: Annotated[int, Field(ge=0, le=MAX_HISTORY_DAYS), WHOLE] | None = Field(
        default=None,
        description=(
            "Days for which speech on ElevenLabs' paths is kept with its text, for the history. "
            "With 0, no speech is kept, and the speech kept so far is deleted."
        ),
    )


class ShownWorkspace(Shown):
    id: Id
    name: str
    plan: str = Field(description="Plan id; `owner` on a service that serves only its own machine.")
    retention: str
    speech_history_days: int
    created_at: datetime


class ShownEntry(Shown):
    number: int = Field(description="Sequence number: starts at 1, without gaps.")
    action: str
    actor: str
    target: str
    details: dict[str, Any]
    digest: Annotated[str, BeforeValidator(bytes.hex)] = Field(
        description="SHA-256 of the previous digest and this entry, in hexadecimal."
    )
    created_at: datetime


@any_key.get("/auth/workspace", summary="Get the workspace")
async def read_workspace(principal: PrincipalDep, platform: PlatformDep) -> ShownWorkspace:
    return _shown_workspace(await platform.accounts.workspace(principal), principal, platform)


@account.put("/auth/workspace", summary="Change the workspace")
async def update_workspace(
    body: WorkspaceSettings, principal: PrincipalDep, platform: PlatformDep
) -> ShownWorkspace:
    await platform.request_limits.count_change(principal)
    changed = await platform.accounts.update_workspace(
        principal, body.name or None, body.retention, body.speech_history_days
    )
    return _shown_workspace(changed, principal, platform)


def _shown_workspace(
    row: object, principal: Principal, platform: PlatformServices
) -> ShownWorkspace:
    """Converts a workspace to its public form; a row does not record the plan `owner`."""
    workspace = ShownWorkspace.model_validate(row)
    if principal.is_owner:
        workspace.plan = platform.plans.owner.id
    return workspace


@account.delete("/auth/account", summary="Erase the account")
async def erase_account(principal: PrincipalDep, platform: PlatformDep) -> Done:
    """Permanently deletes the user, the workspace, and its keys, chats, voices, webhooks and files.

    Requires the owner's token, or a key with every scope. The ledger and the audit log are kept;
    they contain numbers and ids, but no request content.
    """
    await platform.erasure.erase(principal)
    return Done(message="the account is erased")


@account.get("/audit", summary="List the audit log, newest first")
async def list_audit(
    principal: PrincipalDep, platform: PlatformDep, query: Paged
) -> Page[ShownEntry]:
    entries, total = await platform.accounts.audit_page(principal, query.page, query.limit)
    return query.answer([ShownEntry.model_validate(entry) for entry in entries], total)


def _check_iso_time(value: object) -> object:
    # A date has a hyphen; without one, pydantic would read "1900000000" as Unix seconds.
    if not isinstance(value, str) or "-" not in value[1:]:
        raise ValueError("must be an ISO 8601 time with a zone, such as 2030-01-31T00:00:00Z")
    return value


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be within the years 1 to 9999 in UTC") from None


Moment = Annotated[
    AwareDatetime, Strict(False), BeforeValidator(_check_iso_time), AfterValidator(_to_utc)
]


class NewApiKey(RequestModel):
    name: Annotated[OneLine, NOT_BLANK, Field(min_length=1)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=20)] | None = None
    expires_at: Moment | None = None


class CreatedKey(Shown):
    id: Id
    name: str
    key: str  # only in this response
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None


class ListedKey(Shown):
    id: Id
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None


class KeyList(Shown):
    keys: list[ListedKey]


@keys.post("/developer/api", status_code=201, summary="Create an API key")
async def create_key(body: NewApiKey, principal: PrincipalDep, platform: PlatformDep) -> CreatedKey:
    """A key cannot have scopes that its creator lacks, or expire later than its creator."""
    if body.expires_at is not None and body.expires_at <= utc_now():
        raise InvalidRequest("expires_at: must be in the future")
    await platform.request_limits.count_change(principal)
    scopes = None if body.scopes is None else list(map(str, body.scopes))
    new = await platform.accounts.create_key(principal, body.name, scopes, body.expires_at)
    return CreatedKey(**dict(ListedKey.model_validate(new.row)), key=new.key)


@keys.get("/developer/api", summary="List API keys")
async def list_keys(principal: PrincipalDep, platform: PlatformDep) -> KeyList:
    return KeyList.model_validate({"keys": await platform.accounts.list_keys(principal)})


@keys.delete("/developer/api/{key_id}", summary="Revoke an API key")
async def delete_key(key_id: str, principal: PrincipalDep, platform: PlatformDep) -> Done:
    # An id is a decimal number of at most 53 bits; anything else is unknown.
    if not (key_id.isascii() and key_id.isdecimal() and len(key_id) <= 16):
        raise NotFound("no API key has that id")
    await platform.accounts.delete_key(principal, int(key_id))
    return Done(message="the API key is revoked")


BrowserScope = Literal["tts", "stt", "chat", "voices"]


class NewBrowserToken(RequestModel):
    scopes: Annotated[list[BrowserScope], Field(min_length=1, max_length=4)]
    expires_in: Annotated[int, Field(ge=10, le=7200, description="Lifetime (s)."), WHOLE] = 600


class BrowserToken(Shown):
    token: str  # only in this response
    scopes: list[str]
    expires_at: datetime


@tokens.post("/auth/tokens", status_code=201, summary="Create a browser token")
async def create_token(
    body: NewBrowserToken, principal: PrincipalDep, platform: PlatformDep
) -> BrowserToken:
    """Returns a short-lived token that a web page or an app can use in place of an API key.

    Its scopes limit it to speech, transcription and chats that are not saved. It ends when it
    expires, or with the key or token that created it. It cannot read or change stored data, so the
    scope `voices` has no effect.
    """
    require_scopes(platform.accounts.authenticator, principal, tuple(body.scopes), visitors=False)
    scopes = sorted(set(body.scopes))
    lifetime = timedelta(seconds=body.expires_in)
    new = await platform.client_secrets.create(principal, scopes, None, lifetime)
    return BrowserToken(token=new.value, scopes=scopes, expires_at=new.expires_at)
