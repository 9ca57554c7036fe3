"""The rows of client secrets, on both databases."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from db.accounts import delete_user
from db.audit import audit_chain
from db.client_secrets import ClientSecret
from db.database import Database
from pipelines.accounts import client_secrets
from pipelines.accounts.authentication import Principal
from pipelines.accounts.client_secrets import ClientSecrets
from pipelines.accounts.service import Accounts
from pipelines.errors import InsufficientScope, TooManyClientSecrets, Unauthorized
from tests.pipelines.accounts.test_keys import accounts_of

SCOPES: tuple[Any, ...] = ("stt", "tts", "chat")
MINUTE = timedelta(minutes=1)


class Tenant:
    """A workspace and its secrets; bytes are bound to their place, but not encrypted."""

    def __init__(self, database: Database, accounts: Accounts, owner: Principal) -> None:
        def seal(data: bytes, about: str) -> bytes:
            return about.encode() + data

        def unseal(data: bytes, about: str) -> bytes:
            assert data.startswith(about.encode())
            return data.removeprefix(about.encode())

        self.accounts, self.owner, self._database = accounts, owner, database
        self.secrets = ClientSecrets(database, accounts.authenticator, "p" * 48, seal, unseal)

    async def create(self, principal: Principal | None = None) -> str:
        maker = principal or self.owner
        made = await self.secrets.create(maker, SCOPES, {"type": "realtime"}, MINUTE)
        return made.value

    async def use(self, secret: str) -> Principal:
        return await self.accounts.authenticator.authenticate(secret, takes_secrets=True)

    async def count(self) -> int:
        return len(await self._database.read(lambda one: one.exec(select(ClientSecret)).all()))


@pytest.fixture
async def tenant(database: Database) -> Tenant:
    return Tenant(database, *await accounts_of(database))


async def signed_up(tenant: Tenant) -> Principal:
    made = await tenant.accounts.sign_up("ada@example.com", "a long password", "", "")
    return await tenant.accounts.authenticator.authenticate(made.token)


async def test_a_secret_stands_for_its_maker_with_the_scopes_of_its_session(tenant: Tenant) -> None:
    found = await tenant.use(await tenant.create())
    assert found.scopes == set(SCOPES) and found.secret is not None
    assert (found.workspace_id, found.key_id) == (tenant.owner.workspace_id, tenant.owner.key_id)
    assert await tenant.secrets.configuration(found) == {"type": "realtime"}
    assert await tenant.secrets.configuration(tenant.owner) is None


async def test_a_secret_that_is_gone_since_it_was_authenticated_has_no_configuration(
    tenant: Tenant,
) -> None:
    found = await tenant.use(await tenant.create())
    with pytest.raises(Unauthorized):
        await tenant.secrets.configuration(replace(found, secret=b"gone"))


async def test_concurrent_creations_do_not_exceed_the_limit(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_secrets, "MAX_SECRETS", 3)
    made = await asyncio.gather(*(tenant.create() for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(one, TooManyClientSecrets) for one in made) == 5
    assert await tenant.count() == 3


async def test_a_maker_that_was_deleted_meanwhile_makes_no_secret(
    tenant: Tenant, database: Database
) -> None:
    ended, erased = await signed_up(tenant), tenant.owner
    assert ended.session_id is not None
    await tenant.accounts.end_session(ended, ended.session_id)
    await database.run(delete_user, erased.user_id)
    for gone in (ended, erased):
        with pytest.raises(Unauthorized):
            await tenant.create(gone)
    assert await tenant.count() == 0


async def test_secrets_of_a_key_revoked_meanwhile_are_refused_and_audited(
    tenant: Tenant, database: Database
) -> None:
    new = await tenant.accounts.create_key(tenant.owner, "revoked")
    maker = await tenant.accounts.authenticator.authenticate(new.key)
    await tenant.create(maker)
    await tenant.accounts.delete_key(tenant.owner, new.row.id)
    assert await tenant.count() == 0
    with pytest.raises(Unauthorized):
        await tenant.use(await tenant.create(maker))
    await tenant.accounts.authenticator._tasks.join()
    chain = await database.read(audit_chain, tenant.owner.workspace_id)
    assert (chain[-1].action, chain[-1].details) == ("key.refused", {"reason": "revoked"})


async def test_secrets_are_deleted_with_the_session_or_the_account_that_made_them(
    tenant: Tenant, database: Database
) -> None:
    ended = await signed_up(tenant)
    await tenant.create(ended)
    await tenant.create()
    assert ended.session_id is not None
    await tenant.accounts.end_session(ended, ended.session_id)
    assert await tenant.count() == 1
    await database.run(delete_user, tenant.owner.user_id)
    assert await tenant.count() == 0


async def test_a_secret_never_acts_as_its_key_on_accounts(tenant: Tenant) -> None:
    found = await tenant.use(await tenant.create())
    with pytest.raises(InsufficientScope):
        await tenant.accounts.create_key(found, "more", ["keys"])
