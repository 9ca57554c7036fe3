"""The stores that all processes of a cluster have to share. A process with other stores, or with
other secrets, refuses to start. `deployments.cluster.release` has the differences that are
allowed."""

import asyncio
import secrets
from contextlib import closing, suppress

from configs.environment import SettingsError
from configs.settings import Settings, keep_secrets
from db.database import Database
from db.errors import DatabaseUnavailable
from db.migrate import upgrade
from db.service import SecretFingerprint, service_id
from pipelines.accounts.authentication import MODEL_SCOPES, Authenticator
from pipelines.accounts.secret_fingerprints import STORE, check_secret_fingerprints
from pipelines.errors import StorageUnavailable, Unauthorized
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import TRY_TIMEOUT_S, Files


async def check_secrets(settings: Settings) -> None:
    """Compare the secrets with those of the database. Raises SettingsError or DatabaseError."""
    with closing(Database(settings.database_url)) as database:
        await check_secret_fingerprints(database, settings.secrets, record=False)


async def check_store(settings: Settings, database: Database) -> bool:
    """Compare the store of files with that of the database; False if the store does not answer.
    Raises SettingsError, also for a store that no service has used yet, or DatabaseError."""
    files = Files(settings, database, Encryption(settings.secrets.data_keys))
    try:
        async with asyncio.timeout(TRY_TIMEOUT_S):
            mark = await files.mark(None)
    except (StorageUnavailable, TimeoutError):
        return False
    await check_secret_fingerprints(database, settings.secrets, mark, record=False)
    return True


async def open_database(
    settings: Settings, *, accept: bool = False, in_cluster: bool = False
) -> Database:
    """Migrate the database, and check that its secrets and its file store are those of the
    settings. `accept` stores the fingerprints of the settings instead. Raises DatabaseError, or
    SettingsError if they differ or, with `in_cluster`, if there is a `stores_problem`."""
    if in_cluster and (problem := await asyncio.to_thread(stores_problem, settings)):
        raise SettingsError(problem)
    if not accept:
        with suppress(DatabaseUnavailable):  # the migration reports the reason
            await check_secrets(settings)
    await asyncio.to_thread(upgrade, settings.database_url)
    keep_secrets(settings)
    database = Database(settings.database_url)
    try:
        files = Files(settings, database, Encryption(settings.secrets.data_keys))
        # Several processes may do this at the same time; all write the same values.
        mark: str | None = await database.read(service_id)
        if accept:
            mark = f"{mark}-{secrets.token_hex(4)}"
        is_new = accept or await database.get(SecretFingerprint, STORE) is None
        try:
            async with asyncio.timeout(TRY_TIMEOUT_S):
                mark = await files.mark(mark if is_new else None)
        except (StorageUnavailable, TimeoutError):
            mark = None  # the service works without its files, and says that it is degraded
        await check_secret_fingerprints(database, settings.secrets, mark, accept=accept)
    except BaseException:
        database.close()
        raise
    return database


def stores_problem(settings: Settings) -> str | None:
    """Describe the problem if several machines of the cluster would each have their own database or
    files, and so separate accounts, credit and recordings."""
    if not (own := own_stores(settings)):
        return None
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    machines = {(node["NodeManagerHostname"], node["NodeManagerAddress"]) for node in alive}
    if len(machines) < 2:
        return None
    each = f"Ray has {len(machines)} machines, each of which would have data of its own"
    return f"{each}; {'; '.join(own)}"


def own_stores(settings: Settings) -> list[str]:
    """Return the settings by which this machine stores data that no other machine can see."""
    own = []
    if settings.database_url.startswith("sqlite"):
        own.append("DATABASE_URL is SQLite: set it to one PostgreSQL database")
    is_folder = settings.storage_url.startswith(("file://", "local://", "memory://"))
    if is_folder and not settings.storage_shared:
        own.append(
            "STORAGE_URL is a folder: set it to an object store, or STORAGE_SHARED=on if the folder"
            " is on a volume that every machine has mounted"
        )
    return own


async def check_wyoming_key(settings: Settings, authenticator: Authenticator) -> None:
    """Raise SettingsError if WYOMING_KEY is wrong or lacks scopes. Raises DatabaseError."""
    if settings.wyoming is None:
        return
    try:
        principal = await authenticator.authenticate(settings.wyoming.key)
    except Unauthorized as error:
        raise SettingsError(f"WYOMING_KEY: {error}") from None
    if principal.is_visitor:
        raise SettingsError(
            "WYOMING_KEY: a browser token does not open this port; create an API key"
        )
    if missing := [scope for scope in MODEL_SCOPES if scope not in principal.scopes]:
        raise SettingsError(f"WYOMING_KEY lacks scopes: {', '.join(missing)}")
