"""Pronunciation dictionaries in ElevenLabs' API: their rules, versions and files."""

from collections.abc import Callable, Container, Iterable
from typing import Annotated, Any, Literal
from uuid import UUID

from anyio import to_thread
from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.callers import Caller, CallerDep
from api.dialects.requests import DialectQuery
from api.elevenlabs.options import ALWAYS, SCHEMES
from api.http.bodies import OneLine, RequestModel
from api.http.errors import ApiError, InvalidField
from api.http.routing import make_router
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form, validated
from api.native.pronunciations import ListedDictionary
from api.sockets.tts.events import LenientModel
from pipelines.text.lexicon import Pronunciation, read_pls, write_pls
from pipelines.tts.dictionaries import MAX_ENTRIES, DictionaryRef

router = make_router("ElevenLabs' dialect", scope="tts", schemes=SCHEMES)

Json = dict[str, Any]

PATH = "/v1/pronunciation-dictionaries"
DICTIONARY = f"{PATH}/{{dictionary_id:uuid}}"
MAX_FILE_BYTES = 2**20
Name = Annotated[OneLine, Field(min_length=1)]


class DictionaryRule(LenientModel):
    """The pronunciation of a word or phrase."""

    type: Literal["alias", "phoneme"]
    string_to_replace: str
    alias: str | None = None
    phoneme: str | None = None
    alphabet: Literal["ipa", "x-sampa"] = "ipa"
    case_sensitive: bool = True
    word_boundaries: Literal[True] = Field(default=True, description="Only whole words match.")

    def entry(self, number: int) -> Pronunciation:
        """Converts the rule; errors name its index. Raises ApiError(validation_error)."""
        fields = self.model_dump(include={self.type, "alphabet", "case_sensitive"})
        try:
            return validated(Pronunciation, {"grapheme": self.string_to_replace, **fields})
        except ApiError as error:
            raise InvalidField(f"rules.{number}", error.message) from None


class DictionaryRules(RequestModel):
    """Rules of a pronunciation dictionary."""

    rules: list[DictionaryRule] = Field(min_length=1, max_length=MAX_ENTRIES)

    def entries(self) -> list[Pronunciation]:
        """Converts the rules. Raises ApiError(validation_error)."""
        return [rule.entry(number) for number, rule in enumerate(self.rules)]


class NewDictionary(DictionaryRules):
    """A complete pronunciation dictionary."""

    name: Name


class RuleStrings(RequestModel):
    """The words and phrases whose rules are removed."""

    rule_strings: list[str] = Field(min_length=1, max_length=MAX_ENTRIES)


class DictionaryFields(BaseModel):
    """The form fields of an upload, without the file."""

    name: Name


class DictionariesQuery(DialectQuery):
    cursor: Annotated[str, Field(pattern="^([1-9][0-9]{0,5})?$")] = ""
    page_size: int = Field(default=30, ge=1, le=100)


@router.post(f"{PATH}/add-from-rules", summary="Create a pronunciation dictionary from rules")
async def add_from_rules(body: NewDictionary, caller: CallerDep) -> Json:
    row = await caller.speech.dictionaries.save(caller.workspace_id, body.name, body.entries())
    return _dictionary(row, "")


@router.post(
    f"{PATH}/add-from-file",
    summary="Create a pronunciation dictionary from a PLS file",
    openapi_extra=form_schema("file", DictionaryFields, BINARY | {"description": "PLS 1.0 file."}),
)
async def add_from_file(request: Request, caller: CallerDep) -> Json:
    async with receive_form(request, UploadLimits(max_file_bytes=MAX_FILE_BYTES)) as form:
        name = form.read(DictionaryFields).name
        data = await to_thread.run_sync(form.file("file").path.read_bytes)
    try:
        entries = await to_thread.run_sync(read_pls, data.decode())
    except UnicodeDecodeError:
        raise InvalidField("file", "must be UTF-8") from None
    return _dictionary(
        await caller.speech.dictionaries.save(caller.workspace_id, name, entries), ""
    )


@router.get(PATH, summary="List pronunciation dictionaries, for ElevenLabs' clients")
async def list_dictionaries(
    caller: CallerDep, query: Annotated[DictionariesQuery, Query()]
) -> Json:
    page = int(query.cursor or 1)
    rows, total = await caller.speech.dictionaries.page(caller.workspace_id, page, query.page_size)
    has_more = page * query.page_size < total
    return {
        "pronunciation_dictionaries": [_dictionary(row) for row in rows],
        "has_more": has_more,
        "next_cursor": str(page + 1) if has_more else None,
    }


@router.get(DICTIONARY, summary="Get a pronunciation dictionary's rules")
async def get_dictionary(dictionary_id: UUID, caller: CallerDep) -> Json:
    dictionary = DictionaryRef(id=str(dictionary_id))
    row, entries = await caller.speech.dictionaries.read(caller.workspace_id, dictionary)
    return {**_dictionary(row), "rules": [rule for entry in entries for rule in _rules(entry)]}


@router.post(f"{DICTIONARY}/set-rules", summary="Replace the rules of a pronunciation dictionary")
async def set_rules(dictionary_id: UUID, body: DictionaryRules, caller: CallerDep) -> Json:
    """Creates a new version. The last ten versions stay available."""
    new = body.entries()
    return await _change(dictionary_id, caller, lambda entries: new)


@router.post(f"{DICTIONARY}/add-rules", summary="Add rules to a pronunciation dictionary")
async def add_rules(dictionary_id: UUID, body: DictionaryRules, caller: CallerDep) -> Json:
    """Creates a new version, in which the rules replace earlier rules of the same strings."""
    new = body.entries()
    replaced = {entry.grapheme for entry in new}
    return await _change(
        dictionary_id, caller, lambda entries: [*_without(entries, replaced), *new]
    )


@router.post(f"{DICTIONARY}/remove-rules", summary="Remove rules from a pronunciation dictionary")
async def remove_rules(dictionary_id: UUID, body: RuleStrings, caller: CallerDep) -> Json:
    """Creates a new version without the rules for the strings. Unknown strings are ignored."""
    removed = set(body.rule_strings)
    return await _change(dictionary_id, caller, lambda entries: _without(entries, removed))


@router.get(
    f"{DICTIONARY}/{{number}}/download",
    summary="Download a version of a pronunciation dictionary as PLS",
    response_class=Response,
    responses={200: {"content": {"application/pls+xml": {"schema": {"type": "string"}}}}},
)
async def download_dictionary(
    dictionary_id: UUID,
    number: Annotated[int, Path(ge=1, le=1_000_000_000, description="Version (`version_id`).")],
    caller: CallerDep,
) -> Response:
    dictionary = DictionaryRef(id=str(dictionary_id), version=number)
    _, entries = await caller.speech.dictionaries.read(caller.workspace_id, dictionary)
    return Response(write_pls(entries), media_type="application/pls+xml")


async def _change(
    dictionary_id: UUID,
    caller: Caller,
    change: Callable[[list[Pronunciation]], list[Pronunciation]],
) -> Json:
    row = await caller.speech.dictionaries.change(caller.workspace_id, str(dictionary_id), change)
    return {"id": str(row.id), "version_id": str(row.version), "version_rules_num": row.size}


def _without(entries: Iterable[Pronunciation], graphemes: Container[str]) -> list[Pronunciation]:
    return [entry for entry in entries if entry.grapheme not in graphemes]


def _dictionary(row: object, prefix: str = "latest_") -> Json:
    dictionary = ListedDictionary.model_validate(row)
    return {
        "id": str(dictionary.id),
        "name": dictionary.name,
        f"{prefix}version_id": str(dictionary.version),
        f"{prefix}version_rules_num": dictionary.size,
        "creation_time_unix": round(dictionary.updated_at.timestamp()),
        **ALWAYS["dictionary"],
    }


def _rules(entry: Pronunciation) -> list[Json]:
    """Returns a rule for the phonemes of an entry, and another for its alias."""
    shared: Json = {"string_to_replace": entry.grapheme, "case_sensitive": entry.case_sensitive}
    shared["word_boundaries"] = True
    rules: list[Json] = []
    if entry.phoneme:
        phonemes = {"phoneme": entry.phoneme, "alphabet": entry.alphabet}
        rules.append({"type": "phoneme", **shared, **phonemes})
    if entry.alias:
        rules.append({"type": "alias", **shared, "alias": entry.alias})
    return rules
