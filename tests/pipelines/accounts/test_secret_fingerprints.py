"""Fingerprints of secrets: every process must use a database with the same ones."""

import asyncio
from base64 import b64encode
from dataclasses import replace

import pytest

from configs.environment import SettingsError
from configs.settings import Secrets
from db.database import Database
from pipelines.accounts.secret_fingerprints import check_secret_fingerprints

OLD, NEW = b64encode(b"o" * 32).decode(), b64encode(b"n" * 32).decode()
SECRETS = Secrets(("t" * 32,), "p" * 32, "u" * 32, (OLD,))


async def test_concurrent_starts_with_the_same_secrets_are_accepted(database: Database) -> None:
    await asyncio.gather(*(check_secret_fingerprints(database, SECRETS) for _ in range(4)))


@pytest.mark.parametrize(
    ("others", "variable"),
    [
        (replace(SECRETS, token_keys=("x" * 32,)), "ANTIPHON_TOKEN_KEY"),
        (replace(SECRETS, api_key_pepper="x" * 32), "ANTIPHON_KEY_PEPPER"),
        (replace(SECRETS, url_key="x" * 32), "ANTIPHON_URL_KEY"),
        (replace(SECRETS, data_keys=(NEW,)), "ANTIPHON_DATA_KEYS"),
    ],
)
async def test_a_changed_secret_is_refused_until_an_operator_accepts_it(
    database: Database, others: Secrets, variable: str
) -> None:
    await check_secret_fingerprints(database, SECRETS)
    with pytest.raises(SettingsError, match=f"^{variable}: not what") as caught:
        await check_secret_fingerprints(database, others)
    assert "x" * 32 not in str(caught.value) and NEW not in str(caught.value)
    await check_secret_fingerprints(database, SECRETS)
    await check_secret_fingerprints(database, others, accept=True)
    await check_secret_fingerprints(database, others)
    with pytest.raises(SettingsError, match=variable):
        await check_secret_fingerprints(database, SECRETS)


async def test_token_keys_can_be_rotated_as_the_manual_describes(database: Database) -> None:
    await check_secret_fingerprints(database, SECRETS)
    old, new = "t" * 32, "n" * 32
    await check_secret_fingerprints(database, replace(SECRETS, token_keys=(new, old)))
    await check_secret_fingerprints(database, replace(SECRETS, token_keys=(old, new)))
    await check_secret_fingerprints(database, replace(SECRETS, token_keys=(new, old)))
    await check_secret_fingerprints(database, replace(SECRETS, token_keys=(new,)))
    with pytest.raises(SettingsError):  # it could not verify the tokens that others sign now
        await check_secret_fingerprints(database, SECRETS)


async def test_data_keys_can_be_rotated_as_the_manual_describes(database: Database) -> None:
    await check_secret_fingerprints(database, SECRETS)
    with pytest.raises(SettingsError, match="PEPPER"):  # a refused start stores no fingerprints
        stranger = replace(SECRETS, api_key_pepper="x" * 32, data_keys=(NEW, OLD))
        await check_secret_fingerprints(database, stranger)
    await check_secret_fingerprints(database, SECRETS)
    both = replace(SECRETS, data_keys=(NEW, OLD))
    await check_secret_fingerprints(database, both)
    for alone in (SECRETS, replace(SECRETS, data_keys=(NEW,))):
        with pytest.raises(SettingsError, match="DATA_KEYS"):  # data may be encrypted under both
            await check_secret_fingerprints(database, alone)
    await check_secret_fingerprints(database, both, rotated=True)
    await check_secret_fingerprints(database, replace(SECRETS, data_keys=(NEW,)))
    with pytest.raises(SettingsError):  # it could not decrypt what others encrypt now
        await check_secret_fingerprints(database, SECRETS)
    back = replace(SECRETS, data_keys=(OLD, NEW))
    await check_secret_fingerprints(database, back, accept=True)
    with pytest.raises(SettingsError):
        await check_secret_fingerprints(database, SECRETS)
    await check_secret_fingerprints(database, back)
