"""Pronunciation dictionaries, and references to them in requests."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from anyio import to_thread
from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from starlette.responses import Response

from api.http.bodies import Done, Id, OneLine, Page, Paged, RequestModel, Shown
from api.http.routing import PrincipalDep, SpeechDep, make_router
from pipelines.text.lexicon import STORED, Pronunciation, read_pls, write_pls
from pipelines.tts.dictionaries import MAX_ENTRIES, DictionaryRef

router = make_router("text to speech", scope="tts")


class VersionQuery(BaseModel):
    version: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="Default: the newest."
    )
    format: Literal["json", "pls"] = Field(default="json", description="`pls` is PLS 1.0.")


def _as_object(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


_Name = BeforeValidator(_as_object, json_schema_input_type=str | DictionaryRef)
MAX_NAMED = 5  # dictionaries per request
DictionaryNames = Annotated[
    tuple[Annotated[DictionaryRef, _Name], ...],
    Field(
        max_length=MAX_NAMED,
        strict=False,
        description="Dictionary ids; earlier dictionaries take precedence.",
    ),
]


class DictionaryBody(RequestModel):
    """A complete dictionary, as `entries` or as a PLS 1.0 document in `pls`."""

    name: Annotated[OneLine, Field(min_length=1)]
    entries: list[Pronunciation] | None = Field(default=None, max_length=MAX_ENTRIES)
    pls: str | None = None

    @model_validator(mode="after")
    def _has_entries(self) -> Self:
        if (self.entries is None) == (self.pls is None):
            raise ValueError("entries: send either entries or pls")
        return self

    def read(self) -> list[Pronunciation]:
        """Returns the entries, parsed if they are PLS; blocking. Raises InvalidRequest."""
        return read_pls(self.pls or "") if self.entries is None else self.entries


class ListedDictionary(Shown):
    id: Id
    name: str
    version: int
    size: int = Field(description="Number of entries.")
    updated_at: datetime


class ShownDictionary(ListedDictionary):
    entries: list[Pronunciation]


@router.get("/pronunciations", summary="List pronunciation dictionaries")
async def list_dictionaries(
    principal: PrincipalDep, speech: SpeechDep, query: Paged
) -> Page[ListedDictionary]:
    rows, total = await speech.dictionaries.page(principal.workspace_id, query.page, query.limit)
    return query.answer([ListedDictionary.model_validate(row) for row in rows], total)


@router.post("/pronunciations", status_code=201, summary="Create a pronunciation dictionary")
async def make_dictionary(
    body: DictionaryBody, principal: PrincipalDep, speech: SpeechDep
) -> ListedDictionary:
    entries = await to_thread.run_sync(body.read)
    dictionary = await speech.dictionaries.save(principal.workspace_id, body.name, entries)
    return ListedDictionary.model_validate(dictionary)


@router.get(
    "/pronunciations/{dictionary_id}",
    summary="Get a pronunciation dictionary",
    response_model=ShownDictionary,
    responses={200: {"content": {"application/pls+xml": {"schema": {"type": "string"}}}}},
)
async def read_dictionary(
    dictionary_id: str,
    principal: PrincipalDep,
    speech: SpeechDep,
    query: Annotated[VersionQuery, Query()],
) -> Any:
    reference = DictionaryRef(id=dictionary_id[:100], version=query.version)
    row, entries = await speech.dictionaries.read(principal.workspace_id, reference)
    if query.format == "pls":
        return Response(write_pls(entries), media_type="application/pls+xml")
    content = {"version": query.version or row.version, "size": len(entries), "entries": entries}
    fields = row.model_dump(exclude={"content"}) | content
    return ShownDictionary.model_validate(fields, context=STORED)


@router.put("/pronunciations/{dictionary_id}", summary="Replace a pronunciation dictionary")
async def replace_dictionary(
    dictionary_id: str, body: DictionaryBody, principal: PrincipalDep, speech: SpeechDep
) -> ListedDictionary:
    """Creates a new version. The last ten versions stay available."""
    entries = await to_thread.run_sync(body.read)
    dictionary = await speech.dictionaries.save(
        principal.workspace_id, body.name, entries, dictionary_id
    )
    return ListedDictionary.model_validate(dictionary)


@router.delete("/pronunciations/{dictionary_id}", summary="Delete a pronunciation dictionary")
async def delete_dictionary(dictionary_id: str, principal: PrincipalDep, speech: SpeechDep) -> Done:
    await speech.dictionaries.delete(principal.workspace_id, dictionary_id)
    return Done(message="the dictionary is deleted")
