"""The limit on the number of API keys of a workspace, on both databases."""

import asyncio

import pytest

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Secrets
from db.database import Database
from pipelines.accounts import service
from pipelines.accounts.service import Accounts
from pipelines.errors import InvalidRequest


async def test_concurrent_key_creations_do_not_exceed_the_key_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_KEYS", 4)
    secrets = Secrets(("t" * 48,), api_key_pepper="p" * 48, url_key="u" * 48, data_keys=())
    made = Accounts(database, secrets, load_yaml(PlansConfig, "plans"))
    first = await made.ensure_first_workspace()
    assert first is not None
    principal = await made.authenticator.authenticate(first)
    done = await asyncio.gather(
        *(made.create_key(principal, str(number)) for number in range(8)), return_exceptions=True
    )
    assert sum(isinstance(one, InvalidRequest) for one in done) == 5
    assert len(await made.list_keys(principal)) == 4
