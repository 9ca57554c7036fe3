"""Pronunciation dictionaries as ElevenLabs' clients make, list and read them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol
from uuid import UUID

from anyio import to_thread
from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.dialects.queries import DialectQuery
from api.elevenlabs.options import SCHEMES, DictionaryLocator
from api.http.bodies import OneLine, RequestModel
from api.http.errors import ApiError
from api.http.routing import PrincipalDep, SpeechDep, make_router
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form, validated
from api.sockets.tts.events import LenientModel
from pipelines.text.lexicon import Pronunciation, read_pls, write_pls
from pipelines.tts.dictionaries import MAX_ENTRIES

router = make_router("ElevenLabs' dialect", scope="tts", schemes=SCHEMES)

PATH = "/v1/pronunciation-dictionaries"
Json = dict[str, Any]
Name = Annotated[OneLine, Field(min_length=1)]
DictionaryId = Annotated[str, Path(max_length=100)]


class DictionaryRule(LenientModel):
    """How a word, or several words, are spoken."""

    type: Literal["alias", "phoneme"]
    string_to_replace: str
    alias: str | None = None
    phoneme: str | None = None
    alphabet: Literal["ipa", "x-sampa"] = "ipa"
    case_sensitive: bool = True
    word_boundaries: Literal[True] = Field(default=True, description="Whole words only.")

    @property
    def entry(self) -> Pronunciation:
        """Raises ApiError(validation_error)."""
        fields = self.model_dump(include={self.type, "alphabet", "case_sensitive"})
        return validated(Pronunciation, {"grapheme": self.string_to_replace, **fields})


class DictionaryRules(RequestModel):
    """A whole dictionary."""

    name: Name
    rules: list[DictionaryRule] = Field(min_length=1, max_length=MAX_ENTRIES)


class DictionaryFields(BaseModel):
    """The fields of a form with a file."""

    name: Name


class DictionariesQuery(DialectQuery):
    cursor: Annotated[str, Field(pattern="^[1-9]?[0-9]{0,5}$", description="A page.")] = ""
    page_size: int = Field(default=30, ge=1, le=100)


class StoredDictionary(Protocol):
    id: UUID
    name: str
    version: int
    size: int
    updated_at: datetime


@router.post(f"{PATH}/add-from-rules", summary="Make a pronunciation dictionary of rules")
async def add_from_rules(body: DictionaryRules, principal: PrincipalDep, speech: SpeechDep) -> Json:
    entries = [one.entry for one in body.rules]
    made = await speech.dictionaries.save(principal.workspace_id, body.name, entries)
    return _made(made)


@router.post(
    f"{PATH}/add-from-file",
    summary="Make a pronunciation dictionary of a PLS file",
    openapi_extra=form_schema("file", DictionaryFields, BINARY | {"description": "PLS 1.0."}),
)
async def add_from_file(request: Request, principal: PrincipalDep, speech: SpeechDep) -> Json:
    async with receive_form(request, UploadLimits(max_file_bytes=2**20)) as form:
        name = validated(DictionaryFields, form.fields).name
        data = await to_thread.run_sync(form.file("file").path.read_bytes)
    try:
        entries = await to_thread.run_sync(read_pls, data.decode())
    except UnicodeDecodeError:
        raise ApiError("validation_error", "file: is not UTF-8", param="file") from None
    return _made(await speech.dictionaries.save(principal.workspace_id, name, entries))


@router.get(PATH, summary="The pronunciation dictionaries")
async def list_dictionaries(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[DictionariesQuery, Query()]
) -> Json:
    page, size = int(query.cursor or 1), query.page_size
    found, total = await speech.dictionaries.page(principal.workspace_id, page, size)
    more = page * size < total
    return {
        "pronunciation_dictionaries": [_latest(one) for one in found],
        "has_more": more,
        "next_cursor": str(page + 1) if more else None,
    }


@router.get(f"{PATH}/{{dictionary_id}}", summary="A pronunciation dictionary, with its rules")
async def get_dictionary(
    dictionary_id: DictionaryId, principal: PrincipalDep, speech: SpeechDep
) -> Json:
    which = DictionaryLocator(pronunciation_dictionary_id=dictionary_id).ref
    row, entries = await speech.dictionaries.read(principal.workspace_id, which)
    return {**_latest(row), "rules": _rules(entries)}


@router.get(
    f"{PATH}/{{dictionary_id}}/{{version_id}}/download",
    summary="A version of a pronunciation dictionary, as PLS",
    response_class=Response,
    responses={200: {"content": {"application/pls+xml": {"schema": {"type": "string"}}}}},
)
async def download_dictionary(
    dictionary_id: DictionaryId, version_id: str, principal: PrincipalDep, speech: SpeechDep
) -> Response:
    asked = {"pronunciation_dictionary_id": dictionary_id, "version_id": version_id}
    which = validated(DictionaryLocator, asked).ref
    _, entries = await speech.dictionaries.read(principal.workspace_id, which)
    return Response(write_pls(entries), media_type="application/pls+xml")


def _made(row: StoredDictionary) -> Json:
    return {**_named(row), "version_id": str(row.version), "version_rules_num": row.size}


def _latest(row: StoredDictionary) -> Json:
    counts = {"latest_version_id": str(row.version), "latest_version_rules_num": row.size}
    return {**_named(row), **counts, "archived_time_unix": None}


def _named(row: StoredDictionary) -> Json:
    return {
        "id": str(row.id),
        "name": row.name,
        "description": None,
        "created_by": "",
        "creation_time_unix": round(row.updated_at.timestamp()),
        "permission_on_resource": "admin",
    }


def _rules(entries: Sequence[Pronunciation]) -> list[Json]:
    """An entry with phonemes and an alias is two rules."""
    rules: list[Json] = []
    for one in entries:
        about = {"string_to_replace": one.grapheme, "case_sensitive": one.case_sensitive}
        about["word_boundaries"] = True
        if one.phoneme:
            sounds = {"phoneme": one.phoneme, "alphabet": one.alphabet}
            rules.append({"type": "phoneme", **about, **sounds})
        if one.alias:
            rules.append({"type": "alias", **about, "alias": one.alias})
    return rules
