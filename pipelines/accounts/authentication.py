"""Authenticates API keys, signed tokens and client secrets, and audits refused keys."""

import hashlib
import hmac
import logging
import secrets
import string
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

import jwt
from sqlmodel import Session

from configs.settings import Secrets
from db.accounts import Workspace, key_by_digest, key_digests, note_refusal, touch_key
from db.audit import audit
from db.client_secrets import delete_secret, secret_by_digest, secret_digests
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.sessions import THIS_MACHINE, LoginSession, owner_of_session, touch_session
from pipelines.errors import TooManyUnknownKeys, Unauthorized
from pipelines.tasks import TaskSet, TtlCache

logger = logging.getLogger(__name__)

T = TypeVar("T", int, UUID)

Scope = Literal["tts", "stt", "voices", "chat", "billing", "webhooks", "keys"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
ALL_SCOPES = frozenset(SCOPES)
MODEL_SCOPES: tuple[Scope, ...] = ("tts", "stt", "chat")
CACHE_TTL_S = 4.0  # a revoked key or token works for at most this long; sockets end within 5 s
CACHE_SIZE = 10_000
MAX_CREDENTIAL_LENGTH = 2048
TOUCH_INTERVAL = timedelta(minutes=1)
DIGESTS_TTL_S = 2.0
DIGESTS_PER_S = 20_000  # most digests read per second: at 1.5 µs each, 3 % of a core
UNAUTHORIZED = "the API key or token is wrong, revoked or expired"
UNKNOWN_SECRET = "the client secret or browser token is wrong or has expired"
MISPLACED_SECRET = "a client secret can only open the Realtime socket; send an API key or a token"
AUDIT_INTERVAL = timedelta(hours=1)
"""Interval between audit entries about a key. When the key ends, a new interval begins."""
MAX_REMEMBERED = 10_000  # keys; only existing ones, so guessed keys do not fill this

KEY_PREFIX = "sk_"
SECRET_PREFIX = "ek_"  # prefix of client secrets
BROWSER_PREFIX = "tk_"  # prefix of browser tokens: client secrets without a session of their own
SINGLE_USE_PREFIX = "sutkn_"  # prefix of browser tokens that end when they are used
KEY_RANDOM_LENGTH = 40
KEY_CHECKSUM_LENGTH = 6
KEY_SHOWN_LENGTH = len(KEY_PREFIX) + 8  # how much of a key its owner sees later
TOKEN_LIFETIME = timedelta(hours=24)
TOKEN_ISSUER = "antiphon"

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


@dataclass(frozen=True, slots=True)
class Principal:
    """User, workspace and rights with which a request acts."""

    user_id: int
    workspace_id: int
    workspace: str  # name of the workspace
    plan: str  # id of the plan
    scopes: frozenset[str]
    key_id: int | None  # None for a token
    retention: str = "standard"  # "zero": no text and no audio is stored
    speech_history_days: int = 0  # how long the history keeps speech; 0 keeps none
    expires_at: datetime | None = None  # end of the key; None if it has none, and for a token
    session_id: UUID | None = None  # session of a token
    secret: bytes | None = None  # digest of a client secret; other fields are its maker's
    is_visitor: bool = False  # a browser token, which opens only what admits visitors
    maker: "bytes | TokenClaims | None" = None  # maker of the secret: digest of a key, or a token
    is_linked: bool = False  # logged in by a link, which works only on this machine
    is_owner: bool = False  # owns the service, and is at its machine: no plan, no prices

    @property
    def actor(self) -> str:
        """Name of the principal in the audit log."""
        return f"user:{self.user_id}" if self.key_id is None else f"key:{self.key_id}"


def new_api_key(prefix: str = KEY_PREFIX) -> str:
    """Makes an API key or client secret: prefix, 40 random characters of base62, 6 of checksum."""
    body = "".join(secrets.choice(_BASE62) for _ in range(KEY_RANDOM_LENGTH))
    return f"{prefix}{body}{_checksum(body)}"


def new_invite() -> str:
    """Makes the code of an invite, with 192 random bits."""
    return f"inv_{secrets.token_urlsafe(24)}"


def is_api_key(credential: str, prefix: str = KEY_PREFIX) -> bool:
    """Whether the form and the checksum are right; needs no look-up."""
    length = len(prefix) + KEY_RANDOM_LENGTH + KEY_CHECKSUM_LENGTH
    if len(credential) != length or not credential.startswith(prefix):
        return False
    body = credential[len(prefix) : -KEY_CHECKSUM_LENGTH]
    return credential.isascii() and _checksum(body) == credential[-KEY_CHECKSUM_LENGTH:]


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    places = reversed(range(KEY_CHECKSUM_LENGTH))
    return "".join(_BASE62[number // 62**place % 62] for place in places)


def key_digest(key: str, pepper: str) -> bytes:
    """Digest under which a random key, client secret or invite is stored; it needs no slow hash."""
    return hmac.digest(pepper.encode(), key.encode(), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """User that a token stands for, and its session."""

    user_id: int
    session_id: UUID


def token_key_id(key: str) -> str:
    """Returns the `kid` of tokens that `key` signs: a one-way hash of the key."""
    return hmac.digest(key.encode(), b"kid", "sha256").hex()[:16]


def issue_token(user_id: int, workspace_id: int, login: LoginSession, key: str) -> str:
    """Issues a JWT that is valid until its session ends."""
    return jwt.encode(
        {
            "iss": TOKEN_ISSUER,
            "aud": TOKEN_ISSUER,
            "sub": str(user_id),
            "workspace": str(workspace_id),
            "iat": login.created_at,
            "exp": login.expires_at,
            "jti": login.id.hex,
        },
        key,
        algorithm="HS256",
        headers={"kid": token_key_id(key)},
    )


def read_token(token: str, keys: Sequence[str]) -> TokenClaims | None:
    """Reads a token; None if it is damaged, has expired, or was signed by none of `keys`."""
    named = {token_key_id(key): key for key in keys}
    try:
        claims = jwt.decode(
            token,
            named[jwt.get_unverified_header(token)["kid"]],
            algorithms=["HS256"],
            audience=TOKEN_ISSUER,
            issuer=TOKEN_ISSUER,
            options={
                "require": ["iss", "aud", "sub", "iat", "exp", "jti"],
                # A token from the future comes from a gateway whose clock is or was ahead.
                "verify_iat": False,
            },
        )
        return TokenClaims(int(claims["sub"]), UUID(claims["jti"]))
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """An existing key, and the reason for its refusal."""

    key_id: int
    workspace_id: int
    reason: Literal["revoked", "expired", "scope"]
    ended_at: datetime | None = None  # when a revoked or expired key ended
    details: dict[str, Any] = field(default_factory=dict)  # more details for the audit


def audit_refusal(session: Session, refusal: RefusedKey, now: datetime) -> None:
    """Writes the audit entry, unless any gateway did so within the interval."""
    since = now - AUDIT_INTERVAL
    if refusal.ended_at is not None:
        since = max(since, refusal.ended_at)
    if note_refusal(session, refusal.key_id, now, since):
        key_id, details = str(refusal.key_id), {"reason": refusal.reason, **refusal.details}
        audit(session, refusal.workspace_id, "key.refused", f"key:{key_id}", key_id, details)


class _RefusedCredential(Unauthorized):
    """An existing key that was revoked or has expired."""

    def __init__(self, refusal: RefusedKey) -> None:
        super().__init__(UNAUTHORIZED)
        self.refusal = refusal


Lookup = Callable[[], AbstractContextManager[bool]]
"""Context of the look-up of an uncached key or token; yields whether failures exceed the limit."""


def _unlimited() -> AbstractContextManager[bool]:
    return nullcontext(False)


class Authenticator:
    """Authentication with a cache of confirmed principals only: guessed keys take no memory."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database = database
        self._secrets = secrets
        self._principals: TtlCache[bytes | TokenClaims, Principal] = TtlCache(_ttl_s, CACHE_SIZE)
        self._digests: TtlCache[None, frozenset[bytes]] = TtlCache(
            lambda digests: max(DIGESTS_TTL_S, len(digests) / DIGESTS_PER_S), 1
        )
        self._ended: set[TokenClaims] = set()  # only signed tokens, so guesses do not fill it
        self._audited: dict[tuple[int, str], float] = {}  # key and reason: monotonic seconds
        self._tasks = TaskSet()

    async def authenticate(
        self, credential: str, lookup: Lookup = _unlimited, *, takes_secrets: bool = False
    ) -> Principal:
        """Authenticates a credential; client secrets only with `takes_secrets`. Ends a single-use
        token. Raises Unauthorized, TooManyUnknownKeys where `lookup` is limited, or
        DatabaseUnavailable."""
        if credential.startswith(SECRET_PREFIX) and not takes_secrets:
            raise Unauthorized(MISPLACED_SECRET)
        try:
            principal = await self.recheck(credential, lookup)
        except _RefusedCredential as error:
            self._audit(error.refusal)
            raise Unauthorized(UNAUTHORIZED) from None
        if credential.startswith(SINGLE_USE_PREFIX) and principal.secret is not None:
            if not await self._database.run(delete_secret, principal.secret):
                raise Unauthorized(UNKNOWN_SECRET)  # it was used at the same time
        return principal

    def note_missing_scopes(self, principal: Principal, scopes: Collection[str]) -> None:
        """Audits that the key was used for an operation that needs `scopes`, which it lacks."""
        # The key that made a client secret may have the scopes.
        if principal.key_id is not None and principal.secret is None:
            details = {"scopes": [scope for scope in SCOPES if scope in scopes]}
            self._audit(
                RefusedKey(principal.key_id, principal.workspace_id, "scope", details=details)
            )

    async def recheck(
        self, credential: str, lookup: Lookup = _unlimited, maker: bytes | TokenClaims | None = None
    ) -> Principal:
        """Authenticates again for a live session, without auditing a key that has ended. With the
        `maker` of its principal, it authenticates the maker: a session outlives the client secret
        that opened it, but not the key or token that made the secret."""
        if maker is not None:
            return await self._principal_of(maker, lookup)
        if is_api_key(credential):
            digest = key_digest(credential, self._secrets.api_key_pepper)
            return await self._principal_of(digest, lookup)
        is_visitor = any(
            is_api_key(credential, prefix) for prefix in (BROWSER_PREFIX, SINGLE_USE_PREFIX)
        )
        if is_visitor or is_api_key(credential, SECRET_PREFIX):
            digest = key_digest(credential, self._secrets.api_key_pepper)
            return replace(await self._load_secret(digest, lookup), is_visitor=is_visitor)
        if credential.count(".") == 2 and len(credential) <= MAX_CREDENTIAL_LENGTH:
            claims = read_token(credential, self._secrets.token_keys)
            if claims is not None:
                return await self._principal_of(claims, lookup)
        raise Unauthorized(UNAUTHORIZED)

    def forget(self, key_id: int) -> None:
        """Ends a key on this replica at once; on others it ends when their caches expire."""
        self._principals.forget_if(lambda _, principal: principal.key_id == key_id)

    def forget_digests(self) -> None:
        """Forgets digests when a key or secret was made; other replicas notice as caches expire."""
        self._digests.forget(None)

    def forget_tokens(self, user_id: int) -> None:
        """Makes the next request with a token of the user read its session from the database."""
        self._principals.forget_if(
            lambda _, principal: principal.key_id is None and principal.user_id == user_id
        )

    def forget_workspace(self, workspace_id: int) -> None:
        """Makes the next request read the workspace from the database."""
        self._principals.forget_if(lambda _, principal: principal.workspace_id == workspace_id)

    def _audit(self, refusal: RefusedKey) -> None:
        """Audits a refusal in the background, at most once an hour per key over all gateways."""
        name = (refusal.key_id, refusal.reason)
        now = time.monotonic()
        audited = self._audited.get(name)
        if audited is not None and now - audited < AUDIT_INTERVAL.total_seconds():
            return
        if len(self._audited) >= MAX_REMEMBERED:
            self._audited.clear()
        self._audited[name] = now
        self._tasks.start(self._write(refusal))

    async def _write(self, refusal: RefusedKey) -> None:
        try:
            await self._database.run(audit_refusal, refusal, utc_now())
        except DatabaseError:
            self._audited.pop((refusal.key_id, refusal.reason), None)  # the next use is audited
            logger.warning("refusal_not_recorded", extra={"key_id": refusal.key_id})

    async def _principal_of(self, reference: bytes | TokenClaims, lookup: Lookup) -> Principal:
        """Returns the principal of a key's digest, or of a token. Raises as `recheck`."""

        async def load() -> Principal:
            if isinstance(reference, TokenClaims):
                return await self._load_session(reference, lookup)
            return await self._load_key(reference, lookup)

        return await self._principals.get(reference, load)

    async def _require_known(self, digest: bytes) -> None:
        """Raises TooManyUnknownKeys for an unknown digest, without a query per guess. Endless
        guesses thus neither burden the database nor lock out keys at the same address."""
        if digest not in await self._digests.get(None, self._load_digests):
            raise TooManyUnknownKeys

    async def _load_secret(self, digest: bytes, lookup: Lookup) -> Principal:
        """Loads a secret. Only its maker is cached: the lifetimes of two caches would add up."""
        with lookup() as is_limited:
            if is_limited:
                await self._require_known(digest)
            row = await self._database.read(secret_by_digest, digest)
            if row is None or row[0].expires_at <= utc_now():
                raise Unauthorized(UNKNOWN_SECRET)
        secret, workspace, key = row
        session_id = secret.session_id
        maker = TokenClaims(workspace.owner_id, session_id) if session_id else key
        assert maker is not None  # a secret is deleted with its maker
        principal = await self._principal_of(maker, _unlimited)
        scopes = principal.scopes.intersection(secret.scopes)
        return replace(principal, scopes=scopes, secret=digest, maker=maker)

    async def _load_key(self, digest: bytes, lookup: Lookup) -> Principal:
        with lookup() as is_limited:
            if is_limited:
                await self._require_known(digest)
            row = await self._database.read(key_by_digest, digest)
            if row is None:
                raise Unauthorized(UNAUTHORIZED)
        key, workspace = row
        now = utc_now()
        if key.revoked_at is not None:
            raise _RefusedCredential(RefusedKey(key.id, workspace.id, "revoked", key.revoked_at))
        if key.expires_at is not None and key.expires_at <= now:
            raise _RefusedCredential(RefusedKey(key.id, workspace.id, "expired", key.expires_at))
        if key.last_used_at is None or now - key.last_used_at > TOUCH_INTERVAL:
            self._tasks.start(self._touch(touch_key, key.id, now))
        scopes = frozenset(key.scopes)
        return _principal(workspace, scopes=scopes, key_id=key.id, expires_at=key.expires_at)

    async def _load_digests(self) -> frozenset[bytes]:
        keys = await self._database.read(key_digests)
        return keys | await self._database.read(secret_digests)

    async def _touch(
        self, touch: Callable[[Session, T, datetime], None], row_id: T, now: datetime
    ) -> None:
        try:
            await self._database.run(touch, row_id, now)
        except DatabaseError:
            logger.warning("key_use_not_recorded", extra={"id": str(row_id)})

    async def _load_session(self, claims: TokenClaims, lookup: Lookup) -> Principal:
        with lookup() as is_limited:
            # A session that has ended never revives, so it is looked up once. Live tokens are never
            # locked out.
            if claims in self._ended:
                raise TooManyUnknownKeys if is_limited else Unauthorized(UNAUTHORIZED)
            row = await self._database.read(owner_of_session, claims.user_id, claims.session_id)
            if row is None or row[1].expires_at <= utc_now():
                if len(self._ended) >= MAX_REMEMBERED:
                    self._ended.clear()
                self._ended.add(claims)
                raise Unauthorized(UNAUTHORIZED)
        workspace, login = row
        now = utc_now()
        if login.last_used_at is None or now - login.last_used_at > TOUCH_INTERVAL:
            self._tasks.start(self._touch(touch_session, login.id, now))
        return _principal(
            workspace,
            scopes=ALL_SCOPES,
            key_id=None,
            session_id=claims.session_id,
            is_linked=login.address == THIS_MACHINE,
        )


def _principal(
    workspace: Workspace,
    *,
    scopes: frozenset[str],
    key_id: int | None,
    expires_at: datetime | None = None,
    session_id: UUID | None = None,
    is_linked: bool = False,
) -> Principal:
    """Makes a principal of a workspace, with the rights of its key or token."""
    return Principal(
        user_id=workspace.owner_id,
        workspace_id=workspace.id,
        workspace=workspace.name,
        plan=workspace.plan,
        scopes=scopes,
        key_id=key_id,
        retention=workspace.retention,
        speech_history_days=workspace.speech_history_days,
        expires_at=expires_at,
        session_id=session_id,
        is_linked=is_linked,
    )


def _ttl_s(principal: Principal) -> float:
    if principal.expires_at is None:
        return CACHE_TTL_S
    return min(CACHE_TTL_S, (principal.expires_at - utc_now()).total_seconds())
