"""Authentication: from an API key or a token to its principal, cached for a few seconds."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from db.accounts import ApiKey, Workspace, key_by_digest, touch_key, user_by_id
from db.columns import utc_now
from db.errors import DatabaseError
from db.session import Database
from pipelines.accounts.credentials import TokenClaims, is_api_key, key_digest, read_token
from pipelines.accounts.refused_key_audit import RefusedKey, RefusedKeyAudit
from pipelines.errors import Unauthorized
from pipelines.tasks import TaskSet, TtlCache

logger = logging.getLogger(__name__)

SCOPES = ("tts", "stt", "voices", "chat", "billing", "webhooks", "keys")
ALL_SCOPES = frozenset(SCOPES)
CACHE_TTL_S = 4.0  # a revoked key works for at most this long; live sockets end within 5 s
CACHE_SIZE = 10_000
MAX_CREDENTIAL_LENGTH = 2048
TOUCH_INTERVAL = timedelta(minutes=1)
UNAUTHORIZED = "the API key or token is missing, wrong, revoked or expired"


@dataclass(frozen=True, slots=True)
class Principal:
    """The user, workspace and rights that a request acts with."""

    user_id: int
    workspace_id: int
    workspace: str  # its name
    plan: str  # id of the plan
    scopes: frozenset[str]
    key_id: int | None  # None for a token
    retention: str = "standard"  # or zero: nothing of what is said or heard is kept
    expires_at: datetime | None = None  # of the key; None for one that stays, and for a token

    @property
    def actor(self) -> str:
        """As the audit log names it."""
        return f"user:{self.user_id}" if self.key_id is None else f"key:{self.key_id}"


class _RefusedCredential(Unauthorized):
    """A real key, but one that has ended."""

    def __init__(self, refusal: RefusedKey) -> None:
        super().__init__(UNAUTHORIZED)
        self.refusal = refusal


class Authenticator:
    """Caches only what the database confirmed, so that guesses cannot fill the memory."""

    def __init__(self, database: Database, token_keys: tuple[str, ...], pepper: str) -> None:
        self._database = database
        self._token_keys = token_keys
        self._pepper = pepper
        self._refused_keys = RefusedKeyAudit(database)
        self._principals: TtlCache[bytes | TokenClaims, Principal] = TtlCache(_ttl_s, CACHE_SIZE)
        self._tasks = TaskSet()

    async def authenticate(self, credential: str) -> Principal:
        """Raises Unauthorized, or DatabaseUnavailable."""
        try:
            return await self.recheck(credential)
        except _RefusedCredential as error:
            self._refused_keys.note(error.refusal)
            raise Unauthorized(UNAUTHORIZED) from None

    def note_missing_scopes(self, principal: Principal, scopes: Collection[str]) -> None:
        """Audits that the key was used for an operation that needs `scopes`, which it lacks."""
        if principal.key_id is not None:
            details = {"scopes": [scope for scope in SCOPES if scope in scopes]}
            self._refused_keys.note(
                RefusedKey(principal.key_id, principal.workspace_id, "scope", details=details)
            )

    async def recheck(self, credential: str) -> Principal:
        """As `authenticate`, for a session that goes on: a key that has ended is not audited."""
        if is_api_key(credential):
            digest = key_digest(credential, self._pepper)
            return await self._principals.get(digest, lambda: self._load_key(digest))
        if credential.count(".") == 2 and len(credential) <= MAX_CREDENTIAL_LENGTH:
            claims = read_token(credential, self._token_keys)
            if claims is not None:
                return await self._principals.get(claims, lambda: self._load_user(claims.user_id))
        raise Unauthorized(UNAUTHORIZED)

    def forget(self, key_id: int) -> None:
        """Ends a key on this replica at once; on others it ends when their caches expire."""
        self._principals.forget_if(lambda _, principal: principal.key_id == key_id)

    def forget_workspace(self, workspace_id: int) -> None:
        """The next request reads the workspace from the database."""
        self._principals.forget_if(lambda _, principal: principal.workspace_id == workspace_id)

    async def _load_key(self, digest: bytes) -> Principal:
        owner = await self._database.read(key_by_digest, digest)
        if owner is None:
            raise Unauthorized(UNAUTHORIZED)
        key, workspace, now = owner.key, owner.workspace, utc_now()
        if key.revoked_at is not None:
            raise _RefusedCredential(RefusedKey(key.id, workspace.id, "revoked", key.revoked_at))
        if key.expires_at is not None and key.expires_at <= now:
            raise _RefusedCredential(RefusedKey(key.id, workspace.id, "expired", key.expires_at))
        if key.last_used_at is None or now - key.last_used_at > TOUCH_INTERVAL:
            self._tasks.start(self._touch(key.id, now))
        return _principal(workspace, frozenset(key.scopes), key)

    async def _touch(self, key_id: int, now: datetime) -> None:
        try:
            await self._database.run(touch_key, key_id, now)
        except DatabaseError:
            logger.warning("key_use_not_noted", extra={"key_id": key_id})

    async def _load_user(self, user_id: int) -> Principal:
        found = await self._database.read(user_by_id, user_id)
        if found is None:
            raise Unauthorized(UNAUTHORIZED)
        return _principal(found[1], ALL_SCOPES)


def _principal(
    workspace: Workspace, scopes: frozenset[str], key: ApiKey | None = None
) -> Principal:
    return Principal(
        user_id=workspace.owner_id,
        workspace_id=workspace.id,
        workspace=workspace.name,
        plan=workspace.plan,
        scopes=scopes,
        key_id=None if key is None else key.id,
        retention=workspace.retention,
        expires_at=None if key is None else key.expires_at,
    )


def _ttl_s(principal: Principal) -> float:
    if principal.expires_at is None:
        return CACHE_TTL_S
    return min(CACHE_TTL_S, (principal.expires_at - utc_now()).total_seconds())
