"""Keys that are used for what they may not do, in the audit log, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session, col, select, update

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

SECRETS = Secrets(("t" * 48,), api_key_pepper="p" * 48, url_key="u" * 48, data_keys=())


class House:
    """A workspace as several gateways see it."""

    def __init__(self, database: Database, gateways: list[Accounts], owner: Principal) -> None:
        self.database, self.gateways, self.owner = database, gateways, owner

    @property
    def accounts(self) -> Accounts:
        return self.gateways[0]

    async def key(self, **options: Any) -> NewKey:
        return await self.accounts.create_key(self.owner, "pelican", **options)

    async def refused(self, key: NewKey, times: int = 1) -> None:
        """By every gateway, so often."""
        for gateway in self.gateways * times:
            with pytest.raises(Unauthorized, match=f"^{UNAUTHORIZED}$"):
                await gateway.authenticator.authenticate(key.key)

    async def told(self, key: NewKey) -> list[dict[str, Any]]:
        """What the audit log has of it, oldest first, once nothing more is written."""
        for gateway in self.gateways:
            await gateway.authenticator._tasks.join()
        chain = await self.database.read(audit_chain, self.owner.workspace_id)
        assert first_break(chain) is None
        entries = [entry for entry in chain if entry.action == "key.refused"]
        mine = [entry for entry in entries if entry.target == str(key.row.id)]
        assert {entry.actor for entry in mine} <= {f"key:{key.row.id}"}
        return [entry.details for entry in mine]

    async def an_hour_later(self, key: NewKey) -> None:
        """Of the database and of each gateway."""

        def age(session: Session) -> None:
            ago = utc_now() - authentication.AUDIT_INTERVAL
            session.exec(update(ApiKey).where(col(ApiKey.id) == key.row.id).values(refused_at=ago))

        await self.database.run(age)
        for gateway in self.gateways:
            gateway.authenticator._audited.clear()


@pytest.fixture
async def house(database: Database) -> AsyncIterator[House]:
    gateways = [Accounts(database, SECRETS, load_yaml(PlansConfig, "plans")) for _ in range(3)]
    first = await gateways[0].ensure_first_workspace()
    assert first is not None
    yield House(database, gateways, await gateways[0].authenticator.authenticate(first))


async def test_a_revoked_key_that_is_used_is_told_of_once_an_hour(house: House) -> None:
    key = await house.key()
    await house.accounts.delete_key(house.owner, key.row.id)
    await house.refused(key, times=5)
    assert await house.told(key) == [{"reason": "revoked"}]
    await house.an_hour_later(key)
    await house.refused(key, times=5)
    assert await house.told(key) == [{"reason": "revoked"}] * 2


async def test_gateways_that_refuse_at_once_tell_once(house: House) -> None:
    key = await house.key()
    await house.accounts.delete_key(house.owner, key.row.id)
    await asyncio.gather(*(house.refused(key) for _ in range(10)))
    assert await house.told(key) == [{"reason": "revoked"}]


async def test_an_expired_key_that_is_used_is_told_of(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(monkeypatch)
    key = await house.key(expires_at=utc_now() + timedelta(hours=1))
    clock.ahead = timedelta(hours=1)
    await house.refused(key, times=2)
    assert await house.told(key) == [{"reason": "expired"}]


async def test_a_key_that_ends_is_told_of_anew(house: House) -> None:
    key = await house.key(scopes=["tts"])
    for gateway in house.gateways:
        weak = await gateway.authenticator.authenticate(key.key)
        gateway.authenticator.note_missing_scopes(weak, ("chat",))
        gateway.authenticator.note_missing_scopes(weak, ("voices",))
    assert await house.told(key) == [{"reason": "scope", "scopes": ["chat"]}]
    await house.accounts.delete_key(house.owner, key.row.id)
    for gateway in house.gateways[1:]:  # as after a few seconds
        gateway.authenticator.forget_workspace(house.owner.workspace_id)
    await house.refused(key, times=2)
    assert (await house.told(key))[1:] == [{"reason": "revoked"}]


async def test_a_key_that_would_make_a_stronger_one_is_told_of(house: House) -> None:
    key = await house.key(scopes=["keys"])
    weak = await house.accounts.authenticator.authenticate(key.key)
    with pytest.raises(InsufficientScope):
        await house.accounts.create_key(weak, "more", ["keys", "stt", "tts"])
    assert await house.told(key) == [{"reason": "scope", "scopes": ["tts", "stt"]}]


async def test_a_session_whose_key_ends_is_no_use_of_it(house: House) -> None:
    key = await house.key()
    await house.accounts.delete_key(house.owner, key.row.id)
    with pytest.raises(Unauthorized):
        await house.accounts.authenticator.recheck(key.key)
    assert await house.told(key) == []


async def test_a_revoked_key_is_nowhere_but_in_its_refusals(house: House) -> None:
    key = await house.key()
    before = len(await house.accounts.list_keys(house.owner))
    await house.accounts.delete_key(house.owner, key.row.id)
    assert len(await house.accounts.list_keys(house.owner)) == before - 1
    with pytest.raises(NotFound):
        await house.accounts.delete_key(house.owner, key.row.id)

    def name(session: Session) -> str:
        return session.exec(select(ApiKey.name).where(ApiKey.id == key.row.id)).one()

    assert await house.database.read(name) == ""


async def test_what_could_not_be_written_is_told_of_next_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await house.key()
    await house.accounts.delete_key(house.owner, key.row.id)

    def fail(*_: object) -> None:
        raise DatabaseUnavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(authentication, "audit_refusal", fail)
        await house.refused(key)
        assert await house.told(key) == []
    await house.refused(key)
    assert await house.told(key) == [{"reason": "revoked"}]
