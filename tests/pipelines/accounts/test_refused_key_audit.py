"""Refused API keys in the audit log: revoked, expired or without the scope; both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import col, select, update

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Secrets
from db.accounts import ApiKey
from db.audit import audit_chain, first_break
from db.database import Database, utc_now
from db.errors import DatabaseUnavailable
from pipelines.accounts import authentication
from pipelines.accounts.authentication import UNAUTHORIZED, Principal
from pipelines.accounts.service import Accounts, NewKey
from pipelines.errors import InsufficientScope, NotFound, Unauthorized
from tests.clock import WallClock
from tests.db.rows import execute, rows

SECRETS = Secrets(("t" * 48,), api_key_pepper="p" * 48, url_key="u" * 48, data_keys=())


class Tenant:
    """A workspace whose requests reach several gateways."""

    def __init__(self, database: Database, gateways: list[Accounts], owner: Principal) -> None:
        self.database, self.gateways, self.owner = database, gateways, owner

    @property
    def accounts(self) -> Accounts:
        return self.gateways[0]

    async def key(self, **options: Any) -> NewKey:
        return await self.accounts.create_key(self.owner, "pelican", **options)

    async def use(self, key: NewKey, times: int = 1) -> None:
        """Uses the key at every gateway, `times` times; each refuses it."""
        for gateway in self.gateways * times:
            with pytest.raises(Unauthorized, match=f"^{UNAUTHORIZED}$"):
                await gateway.authenticator.authenticate(key.key)

    async def refusals(self, key: NewKey) -> list[dict[str, Any]]:
        """Details of the key's audit log entries, oldest first, once all are written."""
        for gateway in self.gateways:
            await gateway.authenticator._tasks.join()
        chain = await self.database.read(audit_chain, self.owner.workspace_id)
        assert first_break(chain) is None
        entries = [entry for entry in chain if entry.action == "key.refused"]
        mine = [entry for entry in entries if entry.target == str(key.row.id)]
        assert {entry.actor for entry in mine} <= {f"key:{key.row.id}"}
        return [entry.details for entry in mine]

    async def pass_audit_interval(self, key: NewKey) -> None:
        """Ages the last refusal in the database, and clears what gateways remember of it."""
        ago = utc_now() - authentication.AUDIT_INTERVAL
        row = update(ApiKey).where(col(ApiKey.id) == key.row.id)
        await execute(self.database, row.values(refused_at=ago))
        for gateway in self.gateways:
            gateway.authenticator._audited.clear()


@pytest.fixture
async def tenant(database: Database) -> AsyncIterator[Tenant]:
    gateways = [Accounts(database, SECRETS, load_yaml(PlansConfig, "plans")) for _ in range(3)]
    first = await gateways[0].ensure_first_workspace()
    assert first is not None
    yield Tenant(database, gateways, await gateways[0].authenticator.authenticate(first))


async def test_the_use_of_a_revoked_key_is_audited_once_an_hour(tenant: Tenant) -> None:
    key = await tenant.key()
    await tenant.accounts.delete_key(tenant.owner, key.row.id)
    await tenant.use(key, times=5)
    assert await tenant.refusals(key) == [{"reason": "revoked"}]
    await tenant.pass_audit_interval(key)
    await tenant.use(key, times=5)
    assert await tenant.refusals(key) == [{"reason": "revoked"}] * 2


async def test_concurrent_refusals_by_several_gateways_are_audited_once(tenant: Tenant) -> None:
    key = await tenant.key()
    await tenant.accounts.delete_key(tenant.owner, key.row.id)
    await asyncio.gather(*(tenant.use(key) for _ in range(10)))
    assert await tenant.refusals(key) == [{"reason": "revoked"}]


async def test_the_use_of_an_expired_key_is_audited(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    key = await tenant.key(expires_at=utc_now() + timedelta(hours=1))
    clock.ahead = timedelta(hours=1)
    await tenant.use(key, times=2)
    assert await tenant.refusals(key) == [{"reason": "expired"}]


async def test_a_key_audited_for_missing_scopes_is_audited_when_revoked(tenant: Tenant) -> None:
    key = await tenant.key(scopes=["tts"])
    for gateway in tenant.gateways:
        weak = await gateway.authenticator.authenticate(key.key)
        gateway.authenticator.note_missing_scopes(weak, ("chat",))
        gateway.authenticator.note_missing_scopes(weak, ("voices",))
    assert await tenant.refusals(key) == [{"reason": "scope", "scopes": ["chat"]}]
    await tenant.accounts.delete_key(tenant.owner, key.row.id)
    for gateway in tenant.gateways[1:]:  # as after the TTL of their caches
        gateway.authenticator.forget_workspace(tenant.owner.workspace_id)
    await tenant.use(key, times=2)
    assert (await tenant.refusals(key))[1:] == [{"reason": "revoked"}]


async def test_an_attempt_to_create_a_key_with_more_scopes_is_audited(tenant: Tenant) -> None:
    key = await tenant.key(scopes=["keys"])
    weak = await tenant.accounts.authenticator.authenticate(key.key)
    with pytest.raises(InsufficientScope):
        await tenant.accounts.create_key(weak, "more", ["keys", "stt", "tts"])
    assert await tenant.refusals(key) == [{"reason": "scope", "scopes": ["tts", "stt"]}]


async def test_rechecking_the_revoked_key_of_a_session_is_not_audited(tenant: Tenant) -> None:
    key = await tenant.key()
    await tenant.accounts.delete_key(tenant.owner, key.row.id)
    with pytest.raises(Unauthorized):
        await tenant.accounts.authenticator.recheck(key.key)
    assert await tenant.refusals(key) == []


async def test_a_revoked_key_is_not_listed_and_loses_its_name(tenant: Tenant) -> None:
    key = await tenant.key()
    before = len(await tenant.accounts.list_keys(tenant.owner))
    await tenant.accounts.delete_key(tenant.owner, key.row.id)
    assert len(await tenant.accounts.list_keys(tenant.owner)) == before - 1
    with pytest.raises(NotFound):
        await tenant.accounts.delete_key(tenant.owner, key.row.id)
    name = select(ApiKey.name).where(ApiKey.id == key.row.id)
    assert await rows(tenant.database, name) == [""]


async def test_a_refusal_is_audited_next_time_after_the_database_failed(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await tenant.key()
    await tenant.accounts.delete_key(tenant.owner, key.row.id)

    def fail(*_: object) -> None:
        raise DatabaseUnavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(authentication, "audit_refusal", fail)
        await tenant.use(key)
        assert await tenant.refusals(key) == []
    await tenant.use(key)
    assert await tenant.refusals(key) == [{"reason": "revoked"}]
