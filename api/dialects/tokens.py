"""Short tokens that clients of other APIs make for browsers."""

from collections.abc import Sequence
from datetime import timedelta

from api.http.errors import ApiError
from api.services import PlatformServices
from pipelines.accounts.authentication import Principal, Scope


async def short_token(
    principal: Principal, platform: PlatformServices, wanted: Sequence[Scope], seconds: float
) -> str:
    """A browser token for what of `wanted` the key may.

    Raises ApiError(insufficient_scope) where that is nothing, and as `ClientSecrets.create`.
    """
    scopes = [one for one in wanted if one in principal.scopes]
    if not scopes:
        raise ApiError("insufficient_scope", f"the API key has none of {', '.join(wanted)}")
    lifetime = timedelta(seconds=seconds)
    return (await platform.client_secrets.create(principal, scopes, None, lifetime)).value
