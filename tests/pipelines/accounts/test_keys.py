"""The limit on the number of API keys of a workspace, on both databases."""

import asyncio

import pytest

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Secrets
from db import accounts
from db.database import Database
from pipelines.accounts import service
from pipelines.accounts.authentication import Principal
from pipelines.accounts.service import Accounts
from pipelines.errors import InvalidRequest


async def accounts_of(database: Database) -> tuple[Accounts, Principal]:
    """Accounts, and the principal of the key of the first workspace."""
    secrets = Secrets(("t" * 48,), api_key_pepper="p" * 48, url_key="u" * 48, data_keys=())
    made = Accounts(database, secrets, load_yaml(PlansConfig, "plans"))
    first = await made.ensure_first_workspace()
    assert first is not None
    return made, await made.authenticator.authenticate(first)


async def test_concurrent_key_creations_do_not_exceed_the_key_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_KEYS", 4)
    made, principal = await accounts_of(database)
    done = await asyncio.gather(
        *(made.create_key(principal, str(number)) for number in range(8)), return_exceptions=True
    )
    assert sum(isinstance(one, InvalidRequest) for one in done) == 5
    assert len(await made.list_keys(principal)) == 4


async def test_repeatedly_made_and_deleted_keys_leave_bounded_rows(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_REVOKED", 3)
    made, principal = await accounts_of(database)
    keys = []
    for number in range(6):
        keys.append(await made.create_key(principal, str(number)))
        await made.delete_key(principal, keys[-1].row.id)
    left = await database.read(accounts.key_digests)
    assert [new.row.digest in left for new in keys] == [False] * 3 + [True] * 3
    assert len(left) == 4 and len(await made.list_keys(principal)) == 1
