"""Pages of lists that begin after an id, as OpenAI's clients read them."""

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")

MOST_ITEMS = 100  # of a page


class CursorQuery(BaseModel):
    after: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=20, ge=1, le=MOST_ITEMS)


class CursorPage(BaseModel, Generic[T]):
    """A page of a list. Send `last_id` as `after` to get the next page."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


def page_of(items: list[Any], limit: int, *, has_more: bool = False) -> CursorPage[Any]:
    """Makes a page of the first `limit` items; set `has_more` if there are more than `items`."""
    page = items[:limit]
    return CursorPage(
        data=page,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
        has_more=has_more or len(items) > limit,
    )
