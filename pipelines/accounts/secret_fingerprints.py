"""Stops a process whose secrets or store of files differ from those of its database. It could
verify no API key or token of the other processes, and read none of their data."""

import hmac
from collections.abc import Mapping
from functools import partial

from sqlalchemy.exc import IntegrityError

from configs.environment import SettingsError
from configs.settings import VARIABLES_OF_SECRETS, Secrets
from db.database import Database
from db.service import differing, split_digests, stored_fingerprints, unknown_secrets

STORE = "STORAGE_URL"  # name of the store among the fingerprints
DATA_KEYS = VARIABLES_OF_SECRETS["data_keys"]


async def check_secret_fingerprints(
    database: Database,
    secrets: Secrets,
    store: str | None = None,
    *,
    accept: bool = False,
    record: bool = True,
    rotated: bool = False,
) -> None:
    """Checks the secrets against the fingerprints that the first process stored, or replaces these
    if `accept`. Later processes add the fingerprint of the first key of each variable, unless
    `record` is false.
    Fingerprints of older data keys remain, and these keys have to be present, until all data is
    `rotated` to the first key. `store` is the mark of the store of files, None when it does not
    answer. Raises SettingsError, which names the variables, or DatabaseUnavailable."""
    marks = _marks(secrets)
    if store is not None:
        marks[STORE] = [store.encode()]
    if not accept:
        # If all is stored, nothing is written: a job's process, which runs only on idle cores, may
        # keep the database's lock for long.
        stored = await database.read(stored_fingerprints)
        _refuse(differing(marks, stored))
        is_stored = all(
            digests[0] in split_digests(stored.get(name, b"")) for name, digests in marks.items()
        )
        if not record or (is_stored and not rotated):
            return
    write = partial(unknown_secrets, lasting=None if rotated else DATA_KEYS, accept=accept)
    try:
        unknown = await database.run(write, marks)
    except IntegrityError:  # another process stored its fingerprints first
        unknown = await database.run(write, marks)
    _refuse(unknown)


def check_stored_fingerprints(secrets: Secrets, stored: Mapping[str, bytes]) -> None:
    """Compares the secrets with the fingerprints of a backup. Raises SettingsError."""
    _refuse(differing(_marks(secrets), stored))


def _refuse(names: list[str]) -> None:
    if names:
        raise SettingsError(
            f"{', '.join(names)}: not what this database was used with; give every node the same"
            " secrets and store, or run `antiphon accept-secrets` if they"
            " changed on purpose"
        )


def _marks(secrets: Secrets) -> dict[str, list[bytes]]:
    """Makes fingerprints by variable; data keys and token keys may be several."""
    values = {
        "token_key": secrets.token_keys,
        "api_key_pepper": (secrets.api_key_pepper,),
        "url_key": (secrets.url_key,),
        "data_keys": secrets.data_keys,
    }
    return {
        variable: [hmac.digest(value.encode(), b"mark", "sha256") for value in values[name]]
        for name, variable in VARIABLES_OF_SECRETS.items()
    }
