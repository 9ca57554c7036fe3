"""Client secrets and browser tokens, which a server makes with its API key for browsers."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from db.accounts import lock_workspace
from db.client_secrets import ClientSecret, live_secrets
from db.database import Database, utc_now
from pipelines.accounts.authentication import (
    BROWSER_PREFIX,
    SECRET_PREFIX,
    SINGLE_USE_PREFIX,
    UNAUTHORIZED,
    UNKNOWN_SECRET,
    Authenticator,
    Principal,
    Scope,
    key_digest,
    new_api_key,
)
from pipelines.errors import InvalidRequest, TooManyClientSecrets, Unauthorized

MAX_SECRETS = 1000  # unexpired secrets per workspace
MAX_CONFIGURATION_BYTES = 1 << 16  # size as JSON

Cipher = Callable[[bytes, str], bytes]  # encrypts or decrypts bytes under associated data


@dataclass(frozen=True, slots=True)
class NewClientSecret:
    """A secret, which is not stored, and its end."""

    value: str
    expires_at: datetime


@dataclass(eq=False, repr=False)
class ClientSecrets:
    """Client secrets of all workspaces; `Authenticator` looks them up."""

    _database: Database
    _authenticator: Authenticator
    _pepper: str
    _encrypt: Cipher
    _decrypt: Cipher

    async def create(
        self,
        principal: Principal,
        scopes: Sequence[Scope],
        configuration: dict[str, Any] | None,
        lifetime: timedelta,
        *,
        single_use: bool = False,
    ) -> NewClientSecret:
        """Creates a client secret for sessions with a `configuration`, or a browser token if that
        is None; a `single_use` token ends when it is used. It has some `scopes` of the principal,
        and lasts no longer than the key that makes it. Raises InvalidRequest for more than
        MAX_CONFIGURATION_BYTES, TooManyClientSecrets, Unauthorized when the workspace or login
        session is gone, or DatabaseUnavailable."""
        data = json.dumps(configuration, ensure_ascii=False).encode()
        if len(data) > MAX_CONFIGURATION_BYTES:
            raise InvalidRequest(f"session: is larger than {MAX_CONFIGURATION_BYTES} bytes of JSON")
        prefix = BROWSER_PREFIX if configuration is None else SECRET_PREFIX
        if single_use:
            prefix = SINGLE_USE_PREFIX
        value = new_api_key(prefix)
        now = utc_now()
        digest = key_digest(value, self._pepper)
        expires_at = now + lifetime
        if principal.expires_at is not None:
            expires_at = min(expires_at, principal.expires_at)
        row = ClientSecret(
            digest=digest,
            workspace_id=principal.workspace_id,
            key_id=principal.key_id,
            session_id=principal.session_id,
            scopes=list(scopes),
            configuration=self._encrypt(data, _about(digest)),
            created_at=now,
            expires_at=expires_at,
        )
        try:
            await self._database.run(_add_within_limit, row)
        except IntegrityError:  # its maker was deleted meanwhile
            raise Unauthorized(UNAUTHORIZED) from None
        self._authenticator.forget_digests()
        return NewClientSecret(value, expires_at)

    async def configuration(self, principal: Principal) -> dict[str, Any] | None:
        """Reads the configuration of a client secret; None for a browser token or other credential.
        Raises Unauthorized for a secret that is gone, DecryptionError, or DatabaseUnavailable."""
        if principal.secret is None or principal.is_visitor:
            return None
        row = await self._database.get(ClientSecret, principal.secret)
        if row is None:
            raise Unauthorized(UNKNOWN_SECRET)
        data = self._decrypt(row.configuration, _about(principal.secret))
        configuration: dict[str, Any] | None = json.loads(data)
        return configuration


def _about(digest: bytes) -> str:
    return f"client_secret/{digest.hex()}"


def _add_within_limit(session: Session, row: ClientSecret) -> None:
    lock_workspace(session, row.workspace_id)  # serialises the creation of secrets
    if live_secrets(session, row.workspace_id, row.created_at) >= MAX_SECRETS:
        raise TooManyClientSecrets(
            f"the workspace has {MAX_SECRETS} client secrets that have not expired; reuse "
            "them, or let them expire sooner"
        )
    session.add(row)
