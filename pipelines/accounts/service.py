"""Accounts: sign-up, login, profile and API keys."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from configs.schema.platform import PlansConfig
from configs.settings import Secrets
from db import accounts
from db.accounts import ApiKey, User, Workspace
from db.audit import SERVICE, audit
from db.billing import ledger
from db.columns import utc_now
from db.session import Database
from pipelines.accounts.authentication import SCOPES, UNAUTHORIZED, Authenticator, Principal
from pipelines.accounts.credentials import (
    KEY_SHOWN_LENGTH,
    TokenClaims,
    issue_token,
    key_digest,
    new_api_key,
)
from pipelines.accounts.passwords import Passwords
from pipelines.errors import (
    EmailTaken,
    InsufficientScope,
    InvalidRequest,
    NotFound,
    Unauthorized,
)

MAX_KEYS = 100  # of one workspace
FIRST_EMAIL = "owner@localhost"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A user and a token for a day."""

    user: User
    token: str


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key's row and, this once, the key itself."""

    row: ApiKey
    key: str


class Accounts:
    """Who may use the service. One instance a process: it remembers principals."""

    def __init__(self, database: Database, secrets: Secrets, plans: PlansConfig) -> None:
        self._database = database
        self._secrets = secrets
        self._plans = plans
        self._passwords = Passwords()
        self._authenticator = Authenticator(database, secrets.token_keys, secrets.api_key_pepper)

    async def authenticate(self, credential: str) -> Principal:
        """Whom an API key or token stands for. Raises Unauthorized or DatabaseUnavailable."""
        return await self._authenticator.authenticate(credential)

    async def recheck(self, credential: str) -> Principal:
        """As `authenticate`, for a session that goes on; the audit log tells of no use."""
        return await self._authenticator.recheck(credential)

    def note_missing_scopes(self, principal: Principal, scopes: Collection[str]) -> None:
        """Tells the audit log, in the background, that the key was used for what it may not."""
        self._authenticator.note_missing_scopes(principal, scopes)

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
        found = await self._database.read(accounts.user_by_email, email)
        stored = found[0].password_hash if found else None
        if not await self._passwords.verify(stored, password) or found is None:
            raise Unauthorized("the e-mail address or the password is wrong")
        user, workspace = found
        if self._passwords.needs_rehash(user.password_hash):
            fresh = await self._passwords.hash(password)
            await self._database.run(accounts.set_password_hash, user.id, fresh)
        return self._signed_in(user, workspace)

    async def update_profile(
        self, principal: Principal, name: str | None, company: str | None
    ) -> User:
        """Changes what is not None. Raises DatabaseUnavailable."""
        user = await self._database.run(_update_profile, principal, name, company)
        if user is None:
            raise Unauthorized(UNAUTHORIZED)
        return user

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
            self.note_missing_scopes(principal, beyond)
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
        self._authenticator.forget(key_id)

    def forget_workspace(self, workspace_id: int) -> None:
        """The next request sees what became of the workspace: on this replica at once."""
        self._authenticator.forget_workspace(workspace_id)

    async def ensure_first_workspace(self) -> str | None:
        """On an empty database makes an owner, a workspace and a key, and returns the key.

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
    accounts.lock_workspace(session, key.workspace_id)  # keys that are made at once take turns
    if accounts.count_keys(session, key.workspace_id) >= MAX_KEYS:
        raise InvalidRequest(f"a workspace has at most {MAX_KEYS} API keys; delete one first")
    _add_key(session, key, actor)


def _add_key(session: Session, key: ApiKey, actor: str) -> None:
    accounts.add_key(session, key)
    audit(
        session, key.workspace_id, "key.created", actor, str(key.id), {"scopes": list(key.scopes)}
    )


def _delete_key(session: Session, principal: Principal, key_id: int) -> None:
    if not accounts.revoke_key(session, principal.workspace_id, key_id, utc_now()):
        raise NotFound("no API key has that id")
    audit(session, principal.workspace_id, "key.deleted", principal.actor, str(key_id))


def _update_profile(
    session: Session, principal: Principal, name: str | None, company: str | None
) -> User | None:
    found = accounts.update_profile(session, principal.user_id, name, company)
    if found is None:
        return None
    user, changed = found
    if changed:
        details = {"changed": changed}
        target = str(user.id)
        audit(session, principal.workspace_id, "profile.changed", principal.actor, target, details)
    return user


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
