"""Bodies that every route shares."""

import re
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

T = TypeVar("T")


class RequestModel(BaseModel):
    """A request body: numbers and booleans are never strings; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class ErrorBody(BaseModel):
    """The body of every error."""

    success: Literal[False] = False
    error: str | dict[str, Any] = Field(
        description="The error type; an object in the OpenAI dialect."
    )
    message: str


class Done(BaseModel):
    """The answer to a deletion."""

    success: Literal[True] = True
    message: str


class Pagination(BaseModel):
    """Where a page stands in its list."""

    page: int
    limit: int
    total: int
    pages: int

    @classmethod
    def of(cls, page: int, limit: int, total: int) -> "Pagination":
        return cls(page=page, limit=limit, total=total, pages=-(-total // limit))


class Page(BaseModel, Generic[T]):
    """One page of a list."""

    data: list[T]
    pagination: Pagination


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters are not allowed")
    return text.strip()


OneLine = Annotated[str, Field(max_length=200), AfterValidator(_one_line)]
"""A name or title: at most 200 characters, no control characters, trimmed."""
