"""Keys and tokens that no longer work, of every kind."""

from datetime import timedelta

from api.services import Services
from db.database import utc_now
from pipelines.accounts.authentication import SCOPES

PASSWORD = "a long password"


async def ended_credentials(services: Services) -> dict[str, str]:
    """By kind; all but the expired one were used before, so that a cache may hold them."""
    platform = services.platform
    accounts, authenticator = platform.accounts, platform.accounts.authenticator
    left = (await accounts.sign_up("left@example.com", PASSWORD, "", "")).token
    owner = await authenticator.authenticate(left)
    deleted = await accounts.create_key(owner, "deleted", list(SCOPES))
    await authenticator.authenticate(deleted.key)
    await accounts.delete_key(owner, deleted.row.id)
    expired = await accounts.create_key(owner, "expired", list(SCOPES), utc_now())
    ended = (await platform.client_secrets.create(owner, ["stt"], {}, timedelta(hours=1))).value
    await accounts.log_out(owner)
    token = (await accounts.sign_up("erased@example.com", PASSWORD, "", "")).token
    erased = await authenticator.authenticate(token)
    key = await accounts.create_key(erased, "erased", list(SCOPES))
    await authenticator.authenticate(key.key)
    await platform.erasure.erase(erased)
    return {
        "deleted key": deleted.key,
        "expired key": expired.key,
        "token of an ended session": left,
        "client secret of an ended session": ended,
        "key of an erased account": key.key,
        "token of an erased account": token,
    }
