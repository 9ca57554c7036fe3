"""API keys of the workspace."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, Field, Strict

from api.http.deps import PlatformDep, PrincipalDep
from api.http.routing import make_router
from api.http.schemas import Done, OneLine, RequestModel
from db.accounts import ApiKey
from db.database import utc_now
from pipelines.errors import InvalidRequest, NotFound

router = make_router(scope="keys")

Scope = Literal["tts", "stt", "voices", "chat", "billing", "webhooks", "keys"]


def _text(value: object) -> object:
    # Without a hyphen it is no date: pydantic would read "1900000000" as seconds.
    if not isinstance(value, str) or "-" not in value[1:]:
        raise ValueError("must be an ISO 8601 text with a zone, such as 2030-01-31T00:00:00Z")
    return value


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be within the years 1 to 9999 in UTC") from None


Moment = Annotated[AwareDatetime, Strict(False), BeforeValidator(_text), AfterValidator(_to_utc)]


class NewApiKey(RequestModel):
    name: Annotated[OneLine, Field(min_length=1)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=20)] | None = None
    expires_at: Moment | None = None


class CreatedKey(BaseModel):
    id: str
    name: str
    key: str  # shown this once
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None


class ListedKey(BaseModel):
    id: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None


class KeyList(BaseModel):
    keys: list[ListedKey]


@router.post("/developer/api", status_code=201, tags=["keys"], summary="Make an API key")
async def create_key(body: NewApiKey, principal: PrincipalDep, platform: PlatformDep) -> CreatedKey:
    """A key can do no more, and lasts no longer, than the one that makes it."""
    if not body.name:
        raise InvalidRequest("name: must have at least 1 character that is not a space")
    if body.expires_at is not None and body.expires_at <= utc_now():
        raise InvalidRequest("expires_at: must be in the future")
    scopes = None if body.scopes is None else list(map(str, body.scopes))
    new = await platform.accounts.create_key(principal, body.name, scopes, body.expires_at)
    return CreatedKey(key=new.key, **_fields(new.row))


@router.get("/developer/api", tags=["keys"], summary="The workspace's API keys")
async def list_keys(principal: PrincipalDep, platform: PlatformDep) -> KeyList:
    return KeyList(
        keys=[
            ListedKey(last_used_at=row.last_used_at, **_fields(row))
            for row in await platform.accounts.list_keys(principal)
        ]
    )


def _fields(row: ApiKey) -> dict[str, Any]:
    """What is shown of a key whenever it is shown."""
    return {
        "id": str(row.id),
        "name": row.name,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
    }


@router.delete("/developer/api/{key_id}", tags=["keys"], summary="Revoke an API key")
async def delete_key(key_id: str, principal: PrincipalDep, platform: PlatformDep) -> Done:
    # An id is a decimal of at most 53 bits; anything else names no key.
    if not (key_id.isascii() and key_id.isdecimal() and len(key_id) <= 16):
        raise NotFound("no API key has that id")
    await platform.accounts.delete_key(principal, int(key_id))
    return Done(message="the API key is revoked")
