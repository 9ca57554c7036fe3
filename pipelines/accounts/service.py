"""Accounts: sign-up, login with passwords, profile, workspace and API keys."""

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from configs.schema.platform import PlansConfig
from configs.settings import Secrets
from db import accounts
from db.accounts import ApiKey, User, Workspace
from db.audit import SERVICE, AuditEntry, audit, audit_page
from db.billing import ledger
from db.database import Database, utc_now
from pipelines.accounts.authentication import (
    KEY_SHOWN_LENGTH,
    SCOPES,
    UNAUTHORIZED,
    Authenticator,
    Principal,
    TokenClaims,
    issue_token,
    key_digest,
    new_api_key,
)
from pipelines.errors import (
    EmailTaken,
    HashingBusy,
    InsufficientScope,
    InvalidRequest,
    NotFound,
    Unauthorized,
)

T = TypeVar("T")

MAX_KEYS = 100  # of one workspace
FIRST_EMAIL = "owner@localhost"
HASHING_THREADS = 2
QUEUE_LENGTH = 16  # about 0.4 s of waiting at 40 ms a hash


class Passwords:
    """argon2id at the minimum that OWASP recommends, in threads, so that it neither blocks the
    event loop nor takes both cores."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1, type=Type.ID)
        self._threads = ThreadPoolExecutor(HASHING_THREADS, thread_name_prefix="passwords")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Raises HashingBusy."""
        return await self._in_thread(lambda: self._hasher.hash(_normal(password)))

    async def verify(self, stored: str | None, password: str) -> bool:
        """Takes as long for an account that does not exist (`stored` is None).

        Raises HashingBusy.
        """
        return await self._in_thread(lambda: self._matches(stored, password))

    def needs_rehash(self, stored: str) -> bool:
        """Whether the hash has other parameters than the current ones."""
        return self._hasher.check_needs_rehash(stored)

    @cached_property
    def _dummy_hash(self) -> str:
        return self._hasher.hash("the account does not exist")

    def _matches(self, stored: str | None, password: str) -> bool:
        try:
            matches = self._hasher.verify(stored or self._dummy_hash, _normal(password))
        except (VerificationError, InvalidHashError):
            return False
        return matches and stored is not None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._waiting >= QUEUE_LENGTH + HASHING_THREADS:
            raise HashingBusy("too many sign-ups and logins at once; try again in a second")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def _normal(password: str) -> str:
    """Unicode NFC: the same password, however the keyboard composes its characters."""
    return unicodedata.normalize("NFC", password)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A user and a token that is valid for a day."""

    user: User
    token: str


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key's row and the key itself, which is not stored."""

    row: ApiKey
    key: str


class Accounts:
    """Users, workspaces and keys. One instance a process: its authenticator caches principals."""

    def __init__(self, database: Database, secrets: Secrets, plans: PlansConfig) -> None:
        self._database = database
        self._secrets = secrets
        self._plans = plans
        self._passwords = Passwords()
        self.authenticator = Authenticator(database, secrets)

    async def sign_up(self, email: str, password: str, name: str, company: str) -> SignedIn:
        """`email` is normalised. Raises EmailTaken, HashingBusy or DatabaseUnavailable."""
        # Hashed first, so that a taken address costs the same time as a free one.
        password_hash = await self._passwords.hash(password)
        user = User(email=email, password_hash=password_hash, name=name, company=company)
        workspace = self._workspace(user)
        try:
            await self._database.run(_add_user, user, workspace, self._plans.signup_credit)
        except IntegrityError:
            raise EmailTaken("email: an account with this address exists") from None
        return self._signed_in(user, workspace)

    async def log_in(self, email: str, password: str) -> SignedIn:
        """Raises Unauthorized, HashingBusy or DatabaseUnavailable."""
        found = await self._database.read(accounts.find_user, User.email == email)
        stored = found[0].password_hash if found else None
        if not await self._passwords.verify(stored, password) or found is None:
            raise Unauthorized("the e-mail address or the password is wrong")
        user, workspace = found
        if self._passwords.needs_rehash(user.password_hash):
            fresh = await self._passwords.hash(password)
            await self._database.run(accounts.change_row, User, user.id, password_hash=fresh)
        return self._signed_in(user, workspace)

    async def update_profile(
        self, principal: Principal, name: str | None, company: str | None
    ) -> User:
        """Changes what is not None. Raises Unauthorized for a deleted user, or
        DatabaseUnavailable."""
        return await self._database.run(
            _change, principal, User, principal.user_id, name=name, company=company
        )

    async def workspace(self, principal: Principal) -> Workspace:
        """The workspace of the caller. Raises as `update_workspace`."""
        found = await self._database.get(Workspace, principal.workspace_id)
        if found is None:
            raise Unauthorized(UNAUTHORIZED)
        return found

    async def update_workspace(
        self, principal: Principal, name: str | None, retention: str | None
    ) -> Workspace:
        """Changes what is not None; applies at once here, and within seconds in other processes.

        Raises Unauthorized when the workspace is gone, or DatabaseUnavailable.
        """
        workspace = await self._database.run(
            _change, principal, Workspace, principal.workspace_id, name=name, retention=retention
        )
        self.authenticator.forget_workspace(principal.workspace_id)
        return workspace

    async def audit_page(
        self, principal: Principal, page: int, limit: int
    ) -> tuple[list[AuditEntry], int]:
        """One page of the audit log, newest first, and the number of all; `page` from 1."""
        return await self._database.read(audit_page, principal.workspace_id, page, limit)

    async def create_key(
        self,
        principal: Principal,
        name: str,
        scopes: list[str] | None = None,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """A key with no more scopes than the caller has; all of them when `scopes` is None.

        It lasts no longer than the key that makes it. Raises InsufficientScope, InvalidRequest at
        MAX_KEYS or for a later end, or DatabaseUnavailable.
        """
        asked = principal.scopes if scopes is None else frozenset(scopes)
        if beyond := sorted(asked - principal.scopes):
            self.authenticator.note_missing_scopes(principal, beyond)
            raise InsufficientScope(f"scopes: this key lacks {', '.join(beyond)} itself")
        if principal.expires_at is not None:
            expires_at = expires_at or principal.expires_at
            if expires_at > principal.expires_at:
                raise InvalidRequest(
                    "expires_at: must not be after the end of the key that makes it"
                )
        new = self._new_key(principal.workspace_id, name, asked, expires_at)
        await self._database.run(_add_key_within_limit, new.row, principal.actor)
        return new

    async def list_keys(self, principal: Principal) -> list[ApiKey]:
        """The workspace's keys, newest first. Raises DatabaseUnavailable."""
        return await self._database.read(accounts.keys_of, principal.workspace_id)

    async def delete_key(self, principal: Principal, key_id: int) -> None:
        """Raises NotFound or DatabaseUnavailable."""
        await self._database.run(_delete_key, principal, key_id)
        self.authenticator.forget(key_id)

    async def ensure_first_workspace(self) -> str | None:
        """On an empty database creates an owner, a workspace and a key, and returns the key.

        None when there is a workspace already. The owner has no usable password: the account
        is used through its key.
        """
        user = User(email=FIRST_EMAIL, password_hash="!", name="Owner")
        workspace = self._workspace(user)
        new = self._new_key(workspace.id, "First key", frozenset(SCOPES), None)
        try:
            added = await self._database.run(
                _add_first, user, workspace, self._plans.signup_credit, new.row
            )
        except IntegrityError:  # another process was first
            return None
        return new.key if added else None

    def _workspace(self, user: User) -> Workspace:
        name = user.company or user.name or user.email.partition("@")[0]
        return Workspace(owner_id=user.id, name=name, plan=self._plans.first.id)

    def _signed_in(self, user: User, workspace: Workspace) -> SignedIn:
        claims = TokenClaims(user_id=user.id, workspace_id=workspace.id)
        return SignedIn(user, issue_token(claims, self._secrets.token_keys[0]))

    def _new_key(
        self, workspace_id: int, name: str, scopes: frozenset[str], expires_at: datetime | None
    ) -> NewKey:
        key = new_api_key()
        row = ApiKey(
            workspace_id=workspace_id,
            name=name,
            digest=key_digest(key, self._secrets.api_key_pepper),
            prefix=key[:KEY_SHOWN_LENGTH],
            scopes=[scope for scope in SCOPES if scope in scopes],
            expires_at=expires_at,
        )
        return NewKey(row, key)


def _add_key_within_limit(session: Session, key: ApiKey, actor: str) -> None:
    accounts.lock_workspace(session, key.workspace_id)  # serialises the creation of keys
    if len(accounts.keys_of(session, key.workspace_id)) >= MAX_KEYS:
        raise InvalidRequest(f"a workspace has at most {MAX_KEYS} API keys; delete one first")
    _add_key(session, key, actor)


def _add_key(session: Session, key: ApiKey, actor: str) -> None:
    session.add(key)
    details = {"scopes": list(key.scopes)}
    audit(session, key.workspace_id, "key.created", actor, str(key.id), details)


def _delete_key(session: Session, principal: Principal, key_id: int) -> None:
    if not accounts.revoke_key(session, principal.workspace_id, key_id, utc_now()):
        raise NotFound("no API key has that id")
    audit(session, principal.workspace_id, "key.deleted", principal.actor, str(key_id))


def _change(
    session: Session,
    principal: Principal,
    model: type[accounts.Row],
    row_id: int,
    **values: str | None,
) -> accounts.Row:
    found = accounts.change_row(session, model, row_id, **values)
    if found is None:
        raise Unauthorized(UNAUTHORIZED)
    row, changed = found
    if changed:
        action, details = "profile.changed", dict[str, Any](changed=changed)
        if isinstance(row, Workspace):
            action, details["retention"] = "workspace.changed", row.retention
        audit(session, principal.workspace_id, action, principal.actor, str(row_id), details)
    return row


def _add_user(
    session: Session, user: User, workspace: Workspace, credit: int, actor: str = ""
) -> None:
    accounts.add_user(session, user, workspace)
    ledger.open_account(session, workspace.id, credit)
    actor = actor or f"user:{user.id}"
    audit(session, workspace.id, "account.created", actor, str(user.id))


def _add_first(
    session: Session, user: User, workspace: Workspace, credit: int, key: ApiKey
) -> bool:
    if accounts.any_workspace(session):
        return False
    _add_user(session, user, workspace, credit, SERVICE)
    _add_key(session, key, SERVICE)
    return True
