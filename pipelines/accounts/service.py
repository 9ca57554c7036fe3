"""Accounts: sign-up, login with passwords, sessions, profile, workspace and API keys."""

import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from configs.schema.platform import PlansConfig
from configs.settings import Secrets, SignUpPolicy
from db import accounts, sessions
from db.accounts import ApiKey, User, Workspace
from db.audit import SERVICE, AuditEntry, audit, audit_page, creator_of
from db.billing import ledger
from db.client_secrets import delete_secrets_of
from db.database import Database, utc_now
from db.errors import DatabaseUnavailable
from db.invites import Invite, add_only, redeem
from db.sessions import THIS_MACHINE, LoginSession
from db.voices.history import delete_old_items
from pipelines.accounts.authentication import (
    KEY_SHOWN_LENGTH,
    SCOPES,
    TOKEN_LIFETIME,
    UNAUTHORIZED,
    Authenticator,
    Principal,
    issue_token,
    key_digest,
    new_api_key,
    new_invite,
)
from pipelines.accounts.passwords import Passwords
from pipelines.errors import (
    EmailTaken,
    InsufficientScope,
    InvalidInvite,
    InvalidRequest,
    NotFound,
    SignUpClosed,
    Unauthorized,
    WrongPassword,
)

MAX_KEYS = 100  # API keys per workspace
MAX_USER_AGENT = 200  # characters that are kept
MAX_ROUNDS = 20  # batches of the history that one change deletes
FIRST_EMAIL = "owner@localhost"
LINK_LIFETIME = timedelta(minutes=10)
LINKED_LIFETIME = timedelta(days=30)  # a session from a link: no password can renew it
UNKNOWN_LINK = (
    "the link was used before, is too old, or was replaced when the service started again"
)
EMAIL_TAKEN = "email: an account with this address exists"


@dataclass(frozen=True, slots=True)
class Origin:
    address: str = ""
    user_agent: str = ""
    network: str = ""  # widest network that a single customer may have


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


@dataclass(eq=False, repr=False)
class Accounts:
    """Users, workspaces and keys. A process has one instance: its authenticator caches
    principals. Every method raises DatabaseUnavailable."""

    _database: Database
    _secrets: Secrets
    _plans: PlansConfig
    _policy: SignUpPolicy = "open"  # who can sign up
    _passwords: Passwords = field(default_factory=Passwords)

    def __post_init__(self) -> None:
        self.authenticator = Authenticator(self._database, self._secrets)

    async def sign_up(
        self,
        email: str,
        password: str,
        name: str,
        company: str,
        origin: Origin = Origin(),
        invite: str | None = None,
    ) -> SignedIn:
        """Signs a user up; `email` is normalised. Uses up an invite, even where none is needed.
        Raises SignUpClosed, InvalidInvite, EmailTaken or Overloaded."""
        if self._policy == "closed":
            raise SignUpClosed
        if self._policy == "invite" and not invite:
            raise InvalidInvite
        # Hashing first makes a taken address cost the same time as a free one.
        password_hash = await self._passwords.hash_new(
            password, email, name, company, network=origin.network
        )
        user = User(email=email, password_hash=password_hash, name=name, company=company)
        workspace = self._workspace(user)
        login = new_session(user.id, origin)
        credit = self._plans.signup_credit
        digest = key_digest(invite, self._secrets.api_key_pepper) if invite else None
        try:
            await self._database.run(_add_user, user, workspace, credit, login=login, invite=digest)
        except IntegrityError:
            raise EmailTaken(EMAIL_TAKEN) from None
        return self._signed_in(user, workspace, login)

    async def invite(self, email: str | None, credit: int | None, expires_at: datetime) -> str:
        """Creates an invite, only for `email` unless it is None; `credit` in micro-USD."""
        code = new_invite()
        digest = key_digest(code, self._secrets.api_key_pepper)
        row = Invite(digest=digest, email=email, credit=credit, expires_at=expires_at)
        await self._database.run(lambda session: session.add(row))
        return code

    async def log_in(self, email: str, password: str, origin: Origin = Origin()) -> SignedIn:
        """Logs a user in. Raises Unauthorized or Overloaded."""
        account = await self._database.read(accounts.find_user, User.email == email)
        stored = account[0].password_hash if account else None
        network = origin.network
        if not await self._passwords.verify(stored, password, network=network) or account is None:
            raise Unauthorized("the e-mail address or the password is wrong")
        user, workspace = account
        fresh = user.password_hash
        login = new_session(user.id, origin)
        if self._passwords.needs_rehash(fresh):
            fresh = await self._passwords.hash(password, network=network)
        await self._database.run(_begin_session, login, user.password_hash, fresh)
        return self._signed_in(user, workspace, login)

    async def knows_address(self, email: str, address: str) -> bool:
        """Whether a stored session of the account came from this address."""
        return await self._database.read(sessions.knows_address, email, address)

    async def change_password(
        self, principal: Principal, current: str, new: str, network: str = ""
    ) -> None:
        """Changes the password, and ends all other tokens of the user. Raises WrongPassword,
        InsufficientScope for an API key, Unauthorized for a deleted user, or Overloaded."""
        _require_token(principal, "change the password")
        user = await self._database.get(User, principal.user_id)
        if user is None:
            raise Unauthorized(UNAUTHORIZED)
        if not await self._passwords.verify(user.password_hash, current, network=network):
            raise WrongPassword("current_password: is not the password of this account")
        changed = await self._passwords.hash_new(
            new, user.email, user.name, field="new_password", network=network
        )
        by = (principal.workspace_id, principal.actor)
        stored, kept = user.password_hash, principal.session_id
        await self._database.run(_set_password, user.id, by, changed, verified=stored, kept=kept)
        self.authenticator.forget_tokens(principal.user_id)

    async def sessions(self, principal: Principal) -> list[LoginSession]:
        """Lists the live sessions of the user, newest first."""
        return await self._database.read(sessions.sessions_of, principal.user_id, utc_now())

    async def end_session(self, principal: Principal, session_id: UUID) -> None:
        """Ends a session and its token, with live sockets. Raises NotFound."""
        await self._database.run(_end_session, principal, session_id)
        self.authenticator.forget_tokens(principal.user_id)

    async def end_other_sessions(self, principal: Principal) -> None:
        await self._database.run(_end_other_sessions, principal)
        self.authenticator.forget_tokens(principal.user_id)

    async def log_out(self, principal: Principal) -> None:
        """Ends the caller's token. Raises InsufficientScope for a key."""
        _require_token(principal, "log out")
        user_id, session_id = principal.user_id, principal.session_id
        await self._database.run(sessions.log_out, user_id, session_id, utc_now())
        self.authenticator.forget_tokens(principal.user_id)

    async def update_profile(
        self, principal: Principal, name: str | None, company: str | None
    ) -> User:
        """Changes the fields that are not None. Raises Unauthorized."""
        return await self._database.run(
            _change, principal, User, principal.user_id, name=name, company=company
        )

    async def profile(self, principal: Principal) -> User:
        """Reads the user who calls. Raises as `update_workspace`."""
        return await self._existing(User, principal.user_id)

    async def workspace(self, principal: Principal) -> Workspace:
        """Reads the workspace of the caller. Raises as `update_workspace`."""
        return await self._existing(Workspace, principal.workspace_id)

    async def _existing(self, model: type[accounts.Row], identity: int) -> accounts.Row:
        if (row := await self._database.get(model, identity)) is None:
            raise Unauthorized(UNAUTHORIZED)
        return row

    async def update_workspace(
        self,
        principal: Principal,
        name: str | None,
        retention: str | None,
        speech_history_days: int | None = None,
    ) -> Workspace:
        """Changes the fields that are not None; other processes notice within seconds. Raises
        Unauthorized when the workspace is gone."""
        workspace = await self._database.run(
            _change,
            principal,
            Workspace,
            principal.workspace_id,
            name=name,
            retention=retention,
            speech_history_days=speech_history_days,
        )
        self.authenticator.forget_workspace(principal.workspace_id)
        if speech_history_days is not None:
            with suppress(DatabaseUnavailable):  # housekeeping deletes the rest; lists omit it
                for _ in range(MAX_ROUNDS):
                    if not await self._database.run(delete_old_items, utc_now(), workspace.id):
                        break
                await self._database.forget_deleted()
        return workspace

    async def audit_page(
        self, principal: Principal, page: int, limit: int
    ) -> tuple[list[AuditEntry], int]:
        """Reads one page (from 1) of the audit log, newest first, and the number of all entries."""
        return await self._database.read(audit_page, principal.workspace_id, page, limit)

    async def create_key(
        self,
        principal: Principal,
        name: str,
        scopes: list[str] | None = None,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Creates a key with some of the caller's `scopes`, by default all. Raises
        InsufficientScope, or InvalidRequest at MAX_KEYS or if it would outlast the caller's key."""
        asked = principal.scopes if scopes is None else frozenset(scopes)
        if beyond := sorted(asked - principal.scopes):
            self.authenticator.note_missing_scopes(principal, beyond)
            raise InsufficientScope(f"scopes: the key of this request lacks {', '.join(beyond)}")
        if principal.expires_at is not None:
            expires_at = expires_at or principal.expires_at
            if expires_at > principal.expires_at:
                raise InvalidRequest(
                    "expires_at: must not be later than the expiry of the key that creates it"
                )
        new = self._new_key(principal.workspace_id, name, asked, expires_at)
        await self._database.run(_add_key_within_limit, new.row, principal.actor)
        self.authenticator.forget_digests()
        return new

    async def list_keys(self, principal: Principal) -> list[ApiKey]:
        """Lists the workspace's keys, newest first."""
        return await self._database.read(accounts.keys_of, principal.workspace_id)

    async def delete_key(self, principal: Principal, key_id: int) -> None:
        """Revokes a key. Raises NotFound."""
        await self._database.run(_delete_key, principal, key_id)
        self.authenticator.forget(key_id)

    async def ensure_first_workspace(self) -> str | None:
        """Creates a workspace, a key, and an owner without a usable password in an empty database;
        returns the key. None if there is a workspace already."""
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

    async def owner_workspace(self) -> int | None:
        """Finds the workspace that `ensure_first_workspace` created; None if it was erased."""
        return await self._database.read(_owner_workspace)

    async def login_link(self, workspace_id: int) -> str | None:
        """Creates the token of a link that logs the workspace's user in once, and ends earlier
        ones; None without such a workspace. Only its HMAC is stored."""
        account = await self._database.read(accounts.find_user, Workspace.id == workspace_id)
        if account is None:
            return None
        token = f"login_{secrets.token_urlsafe(24)}"
        link = Invite(
            digest=self._link_digest(token),
            email=account[0].email,
            expires_at=utc_now() + LINK_LIFETIME,
        )
        await self._database.run(add_only, link)
        return token

    async def follow_link(self, token: str, workspace_id: int, origin: Origin) -> SignedIn:
        """Logs in with the token of `login_link`, which it uses up. Raises Unauthorized."""
        digest = self._link_digest(token)
        origin = replace(origin, address=THIS_MACHINE)
        return self._signed_in(
            *await self._database.run(_follow_link, digest, workspace_id, origin)
        )

    def _link_digest(self, token: str) -> bytes:
        return key_digest(f"link:{token}", self._secrets.api_key_pepper)

    async def recover_key(self, workspace_id: int, actor: str) -> str:
        """Creates a key with every scope, in place of lost keys. Raises InvalidRequest."""
        new = self._new_key(workspace_id, "Recovered", frozenset(SCOPES), None)
        await self._database.run(_add_key_within_limit, new.row, actor)
        return new.key

    async def reset_password(
        self, workspace: Workspace, password: str, email: str | None, actor: str
    ) -> User:
        """Sets the owner's password, and perhaps address, and ends all sessions. Raises
        InvalidRequest, EmailTaken or Unauthorized."""
        changed = await self._passwords.hash_new(password, email or "", workspace.name)
        owner, by = workspace.owner_id, (workspace.id, actor)
        try:
            return await self._database.run(_set_password, owner, by, changed, email=email)
        except IntegrityError:
            raise EmailTaken(EMAIL_TAKEN) from None

    def _workspace(self, user: User) -> Workspace:
        name = user.company or user.name or user.email.partition("@")[0]
        return Workspace(owner_id=user.id, name=name, plan=self._plans.first.id)

    def _signed_in(self, user: User, workspace: Workspace, login: LoginSession) -> SignedIn:
        token = issue_token(user.id, workspace.id, login, self._secrets.token_keys[0])
        return SignedIn(user, token)

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


def new_session(user_id: int, origin: Origin, lifetime: timedelta = TOKEN_LIFETIME) -> LoginSession:
    """Makes a session that lasts as long as its token; it is not stored yet."""
    agent = "".join(filter(str.isprintable, origin.user_agent))[:MAX_USER_AGENT]
    now = utc_now()
    return LoginSession(
        id=uuid4(),
        user_id=user_id,
        address=origin.address,
        user_agent=agent,
        created_at=now,
        expires_at=now + lifetime,
    )


def _require_token(principal: Principal, what: str) -> None:
    if principal.key_id is not None:
        raise InsufficientScope(f"{what} with the token of a login: an API key cannot do this")


def _lock_user(session: Session, user_id: int, verified: str | None = None) -> User:
    """Locks a user. Raises Unauthorized if it is gone, or has a password other than `verified`."""
    user = session.get(User, user_id, with_for_update={"key_share": True})
    if user is None or (verified is not None and user.password_hash != verified):
        raise Unauthorized(UNAUTHORIZED)
    return user


def _begin_session(session: Session, login: LoginSession, verified: str, fresh: str) -> None:
    _lock_user(session, login.user_id, verified).password_hash = fresh
    sessions.begin_session(session, login)


def _follow_link(
    session: Session, digest: bytes, workspace_id: int, origin: Origin
) -> tuple[User, Workspace, LoginSession]:
    account = accounts.find_user(session, Workspace.id == workspace_id)
    if account is None:
        raise Unauthorized(UNKNOWN_LINK)
    user, workspace = account
    link = redeem(session, digest, user.email, utc_now())
    if link is None or link.email is None:  # an invite for anyone is not a link
        raise Unauthorized(UNKNOWN_LINK)
    login = new_session(_lock_user(session, user.id).id, origin, LINKED_LIFETIME)
    sessions.begin_session(session, login)
    return user, workspace, login


def _set_password(
    session: Session,
    user_id: int,
    by: tuple[int, str],  # the workspace and the actor of the audit entry
    password_hash: str,
    verified: str | None = None,
    kept: UUID | None = None,
    email: str | None = None,
) -> User:
    user = _lock_user(session, user_id, verified)
    user.password_hash = password_hash
    user.updated_at = utc_now()
    user.email = email or user.email
    sessions.end_other_sessions(session, user_id, kept)
    audit(session, by[0], "password.changed", by[1], str(user_id))
    return user


def _end_session(session: Session, principal: Principal, session_id: UUID) -> None:
    if not sessions.end_session(session, principal.user_id, session_id, utc_now()):
        raise NotFound("no session has that id")
    audit(session, principal.workspace_id, "session.ended", principal.actor, str(session_id))


def _end_other_sessions(session: Session, principal: Principal) -> None:
    _lock_user(session, principal.user_id)
    target = str(principal.user_id)
    if sessions.end_other_sessions(session, principal.user_id, principal.session_id):
        audit(session, principal.workspace_id, "sessions.ended", principal.actor, target)


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
    delete_secrets_of(session, key_id)
    audit(session, principal.workspace_id, "key.deleted", principal.actor, str(key_id))


def _change(
    session: Session,
    principal: Principal,
    model: type[accounts.Row],
    row_id: int,
    **values: str | int | None,
) -> accounts.Row:
    changed_row = accounts.change_row(session, model, row_id, **values)
    if changed_row is None:
        raise Unauthorized(UNAUTHORIZED)
    row, changed = changed_row
    if changed:
        action = "profile.changed"
        details: dict[str, Any] = {"changed": changed}
        if isinstance(row, Workspace):
            action = "workspace.changed"
            details["retention"] = row.retention
            details["speech_history_days"] = row.speech_history_days
        audit(session, principal.workspace_id, action, principal.actor, str(row_id), details)
    return row


def _add_user(
    session: Session,
    user: User,
    workspace: Workspace,
    credit: int,
    actor: str = "",
    login: LoginSession | None = None,
    invite: bytes | None = None,
) -> None:
    if invite is not None:  # first, so that only invited addresses learn that an account exists
        redeemed = redeem(session, invite, user.email, utc_now())
        if redeemed is None:
            raise InvalidInvite
        credit = credit if redeemed.credit is None else redeemed.credit
    accounts.add_user(session, user, workspace)
    ledger.open_account(session, workspace.id, credit)
    if login is not None:
        session.add(login)
    actor = actor or f"user:{user.id}"
    details = {"invited": invite is not None}
    audit(session, workspace.id, "account.created", actor, str(user.id), details)


def _owner_workspace(session: Session) -> int | None:
    oldest = accounts.find_workspace(session)
    is_first = oldest is not None and creator_of(session, oldest.id) == SERVICE
    return oldest.id if oldest is not None and is_first else None


def _add_first(
    session: Session, user: User, workspace: Workspace, credit: int, key: ApiKey
) -> bool:
    if accounts.find_workspace(session) is not None:
        return False
    _add_user(session, user, workspace, credit, SERVICE)
    _add_key(session, key, SERVICE)
    return True
