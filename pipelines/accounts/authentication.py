"""From a credential to whom it stands for, remembered for a few seconds."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

from db.accounts import key_by_digest, touch_key, user_by_id
from db.columns import utc_now
from db.errors import DatabaseError
from db.session import Database
from pipelines.accounts.credentials import is_api_key, key_digest, read_token
from pipelines.accounts.refused_key_audit import RefusedKey, RefusedKeyAudit
from pipelines.errors import Unauthorized

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
    """Whom a request acts for."""

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


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: Principal
    fresh_until: float  # monotonic seconds


class Authenticator:
    """Authenticates; keeps only what the database confirmed, so guesses cannot fill it."""

    def __init__(self, database: Database, token_keys: tuple[str, ...], pepper: str) -> None:
        self._database = database
        self._token_keys = token_keys
        self._pepper = pepper
        self._refusals = RefusedKeyAudit(database)
        self._entries: dict[Hashable, _Entry] = {}
        self._loading: dict[Hashable, asyncio.Task[_Entry]] = {}
        self._touching: set[asyncio.Task[None]] = set()
        self._forgotten = 0  # how often `forget_workspace` was called

    async def authenticate(self, credential: str) -> Principal:
        """Raises Unauthorized, or DatabaseUnavailable."""
        try:
            return await self.recheck(credential)
        except _RefusedCredential as error:
            self._refusals.note(error.refusal)
            raise Unauthorized(UNAUTHORIZED) from None

    def note_missing_scopes(self, principal: Principal, scopes: Collection[str]) -> None:
        """The key was used for what needs `scopes`, which it does not have."""
        if principal.key_id is not None:
            details = {"scopes": [scope for scope in SCOPES if scope in scopes]}
            self._refusals.note(
                RefusedKey(principal.key_id, principal.workspace_id, "scope", details=details)
            )

    async def recheck(self, credential: str) -> Principal:
        """As `authenticate`, for what goes on: that its key has ended is no use of the key."""
        if is_api_key(credential):
            digest = key_digest(credential, self._pepper)
            return await self._remembered(digest, lambda: self._load_key(digest))
        if credential.count(".") == 2 and len(credential) <= MAX_CREDENTIAL_LENGTH:
            claims = read_token(credential, self._token_keys)
            if claims is not None:
                return await self._remembered(claims, lambda: self._load_user(claims.user_id))
        raise Unauthorized(UNAUTHORIZED)

    def forget(self, key_id: int) -> None:
        """Ends a key on this replica at once; others follow when their memory fades."""
        self._entries = {
            name: entry for name, entry in self._entries.items() if entry.principal.key_id != key_id
        }

    def forget_workspace(self, workspace_id: int) -> None:
        """What is asked next comes from the database, also when it is being looked up now."""
        self._entries = {
            name: entry
            for name, entry in self._entries.items()
            if entry.principal.workspace_id != workspace_id
        }
        self._loading = {}
        self._forgotten += 1

    async def _remembered(self, name: Hashable, load: Callable[[], Awaitable[_Entry]]) -> Principal:
        entry = self._entries.get(name)
        if entry is not None and entry.fresh_until > time.monotonic():
            return entry.principal
        # Requests that arrive together share one look-up; one that leaves does not end it.
        loading = self._loading.get(name)
        if loading is None:
            loading = asyncio.ensure_future(self._load(name, load))
            self._loading[name] = loading
            loading.add_done_callback(lambda done: self._loaded(name, done))
        return (await asyncio.shield(loading)).principal

    async def _load(self, name: Hashable, load: Callable[[], Awaitable[_Entry]]) -> _Entry:
        forgotten = self._forgotten
        entry = await load()
        if forgotten == self._forgotten:  # else it may be older than what was forgotten
            if len(self._entries) >= CACHE_SIZE:
                self._entries.clear()
            self._entries[name] = entry
        return entry

    def _loaded(self, name: Hashable, done: "asyncio.Task[_Entry]") -> None:
        if self._loading.get(name) is done:
            del self._loading[name]
        if not done.cancelled():
            done.exception()  # seen, even when every caller has left

    async def _load_key(self, digest: bytes) -> _Entry:
        fresh_until = time.monotonic() + CACHE_TTL_S  # counted from before the look-up
        owner = await self._database.read(key_by_digest, digest)
        if owner is None:
            raise Unauthorized(UNAUTHORIZED)
        key, workspace, now = owner.key, owner.workspace, utc_now()
        if key.revoked_at is not None:
            raise _RefusedCredential(RefusedKey(key.id, workspace.id, "revoked", key.revoked_at))
        if key.expires_at is not None:
            left_s = (key.expires_at - now).total_seconds()
            if left_s <= 0:
                raise _RefusedCredential(
                    RefusedKey(key.id, workspace.id, "expired", key.expires_at)
                )
            fresh_until = min(fresh_until, time.monotonic() + left_s)
        if key.last_used_at is None or now - key.last_used_at > TOUCH_INTERVAL:
            task = asyncio.create_task(self._touch(key.id, now))
            self._touching.add(task)
            task.add_done_callback(self._touching.discard)
        principal = Principal(
            user_id=workspace.owner_id,
            workspace_id=workspace.id,
            workspace=workspace.name,
            plan=workspace.plan,
            scopes=frozenset(key.scopes),
            key_id=key.id,
            retention=workspace.retention,
            expires_at=key.expires_at,
        )
        return _Entry(principal, fresh_until)

    async def _touch(self, key_id: int, now: datetime) -> None:
        try:
            await self._database.run(touch_key, key_id, now)
        except DatabaseError:
            logger.warning("key_use_not_noted", extra={"key_id": key_id})

    async def _load_user(self, user_id: int) -> _Entry:
        fresh_until = time.monotonic() + CACHE_TTL_S
        found = await self._database.read(user_by_id, user_id)
        if found is None:
            raise Unauthorized(UNAUTHORIZED)
        user, workspace = found
        principal = Principal(
            user_id=user.id,
            workspace_id=workspace.id,
            workspace=workspace.name,
            plan=workspace.plan,
            scopes=ALL_SCOPES,
            key_id=None,
            retention=workspace.retention,
        )
        return _Entry(principal, fresh_until)
