"""Pronunciation dictionaries as ElevenLabs' clients make, list and read them."""

from typing import Annotated, Any, Literal
from uuid import UUID

from anyio import to_thread
from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.dialects.requests import DialectQuery
from api.elevenlabs.options import ALWAYS, SCHEMES
from api.http.bodies import OneLine, RequestModel
from api.http.errors import ApiError
from api.http.routing import PrincipalDep, SpeechDep, make_router
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form, validated
from api.native.pronunciations import ListedDictionary
from api.sockets.tts.events import LenientModel
from pipelines.text.lexicon import Pronunciation, read_pls, write_pls
from pipelines.tts.dictionaries import MAX_ENTRIES, DictionaryRef

router = make_router("ElevenLabs' dialect", scope="tts", schemes=SCHEMES)

PATH = "/v1/pronunciation-dictionaries"
MAX_FILE_BYTES = 2**20
Json = dict[str, Any]
Name = Annotated[OneLine, Field(min_length=1)]


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
    """Which page of them."""

    cursor: Annotated[str, Field(pattern="^([1-9][0-9]{0,5})?$")] = ""
    page_size: int = Field(default=30, ge=1, le=100)


@router.post(f"{PATH}/add-from-rules", summary="Make a pronunciation dictionary of rules")
async def add_from_rules(body: DictionaryRules, principal: PrincipalDep, speech: SpeechDep) -> Json:
    entries = [one.entry for one in body.rules]
    made = await speech.dictionaries.save(principal.workspace_id, body.name, entries)
    return _shown(made, "")


@router.post(
    f"{PATH}/add-from-file",
    summary="Make a pronunciation dictionary of a PLS file",
    openapi_extra=form_schema("file", DictionaryFields, BINARY | {"description": "PLS 1.0."}),
)
async def add_from_file(request: Request, principal: PrincipalDep, speech: SpeechDep) -> Json:
    async with receive_form(request, UploadLimits(max_file_bytes=MAX_FILE_BYTES)) as form:
        name = validated(DictionaryFields, form.fields).name
        data = await to_thread.run_sync(form.file("file").path.read_bytes)
    try:
        entries = await to_thread.run_sync(read_pls, data.decode())
    except UnicodeDecodeError:
        raise ApiError("validation_error", "file: is not UTF-8", param="file") from None
    return _shown(await speech.dictionaries.save(principal.workspace_id, name, entries), "")


@router.get(PATH, summary="The pronunciation dictionaries")
async def list_dictionaries(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[DictionariesQuery, Query()]
) -> Json:
    page, size = int(query.cursor or 1), query.page_size
    found, total = await speech.dictionaries.page(principal.workspace_id, page, size)
    more = page * size < total
    listed = [_shown(one) for one in found]
    following = {"has_more": more, "next_cursor": str(page + 1) if more else None}
    return {"pronunciation_dictionaries": listed, **following}


@router.get(f"{PATH}/{{dictionary_id:uuid}}", summary="A pronunciation dictionary, with its rules")
async def get_dictionary(dictionary_id: UUID, principal: PrincipalDep, speech: SpeechDep) -> Json:
    which = DictionaryRef(id=str(dictionary_id))
    row, entries = await speech.dictionaries.read(principal.workspace_id, which)
    return {**_shown(row), "rules": [rule for one in entries for rule in _rules(one)]}


@router.get(
    f"{PATH}/{{dictionary_id:uuid}}/{{number}}/download",
    summary="A version of a pronunciation dictionary, as PLS",
    response_class=Response,
    responses={200: {"content": {"application/pls+xml": {"schema": {"type": "string"}}}}},
)
async def download_dictionary(
    dictionary_id: UUID,
    number: Annotated[int, Path(ge=1, le=1_000_000_000, description="The `version_id`.")],
    principal: PrincipalDep,
    speech: SpeechDep,
) -> Response:
    which = DictionaryRef(id=str(dictionary_id), version=number)
    _, entries = await speech.dictionaries.read(principal.workspace_id, which)
    return Response(write_pls(entries), media_type="application/pls+xml")


def _shown(row: object, prefix: str = "latest_") -> Json:
    one = ListedDictionary.model_validate(row)
    return {
        "id": str(one.id),
        "name": one.name,
        f"{prefix}version_id": str(one.version),
        f"{prefix}version_rules_num": one.size,
        "creation_time_unix": round(one.updated_at.timestamp()),
        **ALWAYS["dictionary"],
    }


def _rules(entry: Pronunciation) -> list[Json]:
    """Two, of an entry with phonemes and an alias."""
    about: Json = {"string_to_replace": entry.grapheme, "case_sensitive": entry.case_sensitive}
    about["word_boundaries"] = True
    rules: list[Json] = []
    if entry.phoneme:
        sounds = {"phoneme": entry.phoneme, "alphabet": entry.alphabet}
        rules.append({"type": "phoneme", **about, **sounds})
    if entry.alias:
        rules.append({"type": "alias", **about, "alias": entry.alias})
    return rules
