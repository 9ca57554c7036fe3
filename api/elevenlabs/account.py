"""Voices, models, the user, the subscription and pronunciation dictionaries in ElevenLabs' API."""

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from anyio import to_thread
from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from api.dialects.requests import DialectQuery
from api.elevenlabs.options import ALWAYS, KEY_HEADER, SCHEMES, find_voice
from api.elevenlabs.speech import VoicePath
from api.http.bodies import OneLine, RequestModel
from api.http.errors import ApiError, InvalidField
from api.http.routing import (
    InfrastructureDep,
    PlatformDep,
    PrincipalDep,
    SpeechDep,
    guarded_route,
    make_router,
)
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form, validated
from api.native.pronunciations import ListedDictionary
from api.native.speech import TEXT_CHARACTERS
from api.sockets.tts.events import LenientModel
from db.database import utc_now
from models.base import ModelInfo
from pipelines.text.language_names import name_language
from pipelines.text.lexicon import Pronunciation, read_pls, write_pls
from pipelines.tts.dictionaries import MAX_ENTRIES, DictionaryRef
from pipelines.tts.voices import AvailableVoice

Json = dict[str, Any]
USAGE_DAYS = 30  # days of usage that `character_count` covers


class KeyedRoute(guarded_route(None, SCHEMES)):  # type: ignore[misc]
    """A route that only matches requests with ElevenLabs' key header, since other dialects have the
    same path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if KEY_HEADER not in Headers(scope=scope):
            return Match.NONE, {}
        matched: tuple[Match, Scope] = super().matches(scope)
        return matched


TAG = "ElevenLabs' dialect"
router = make_router(TAG, scope="tts", schemes=SCHEMES)
user = make_router(TAG, scope="billing", schemes=SCHEMES)
keyed = make_router(TAG, route_class=KeyedRoute)
routers = (keyed, router, user)


class VoicesQuery(DialectQuery):
    """Filters of a search for voices, and the page of results."""

    search: str = Field(default="", max_length=200)
    category: str | None = Field(default=None, max_length=30)
    language: str | None = Field(default=None, max_length=30)
    gender: str | None = Field(default=None, max_length=30)
    page_size: int = Field(default=10, ge=1, le=100)
    next_page_token: Annotated[str, Field(pattern="^[0-9]{0,9}$")] = ""


@router.get("/v1/voices", summary="List voices, for ElevenLabs' clients")
async def list_voices(principal: PrincipalDep, speech: SpeechDep) -> Json:
    voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    return {"voices": [*map(_voice, voices)]}


@router.get("/v2/voices", summary="Search voices, for ElevenLabs' clients")
async def search_voices(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[VoicesQuery, Query()]
) -> Json:
    voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    matches = [
        voice
        for voice in map(_voice, voices)
        if query.category in (None, voice["category"])
        and query.gender in (None, voice["labels"]["gender"])
        and query.language in (None, voice["labels"]["language"])
        and query.search.lower()
        in f"{voice['name']} {voice['description']} {voice['labels']}".lower()
    ]
    start = int(query.next_page_token or 0)
    end = start + query.page_size
    has_more = end < len(matches)
    return {
        "voices": matches[start:end],
        "total_count": len(matches),
        "has_more": has_more,
        "next_page_token": str(end) if has_more else None,
    }


@router.get("/v1/voices/{voice_id}", summary="Get a voice, for ElevenLabs' clients")
async def get_voice(voice_id: VoicePath, principal: PrincipalDep, speech: SpeechDep) -> Json:
    directory = speech.synthesis.pipeline.directory
    return _voice(await find_voice(voice_id, directory, principal.workspace_id))


@keyed.get("/v1/models", include_in_schema=False)
async def list_models(infrastructure: InfrastructureDep) -> list[Json]:
    """Lists the models that speak."""
    models = await infrastructure.models.models()
    return [_model(model.info) for model in models if model.info.kind == "tts"]


@user.get("/v1/user", summary="Get the workspace as a user, for ElevenLabs' clients")
async def get_user(principal: PrincipalDep, platform: PlatformDep) -> Json:
    return {
        "user_id": str(principal.user_id),
        "workspace_id": str(principal.workspace_id),
        "first_name": principal.workspace,
        "subscription": await get_subscription(principal, platform),
        **ALWAYS["user"],
    }


@user.get("/v1/user/subscription", summary="Get the subscription, for ElevenLabs' clients")
async def get_subscription(principal: PrincipalDep, platform: PlatformDep) -> Json:
    """Returns the characters used in the last 30 days, and the limit that the credit allows."""
    workspace_id = principal.workspace_id
    today = utc_now().date()
    billing = platform.billing
    current = await platform.subscriptions.current_plan(workspace_id)
    first = today - timedelta(USAGE_DAYS - 1)
    days = await billing.usage(workspace_id, first, today, by_key=False)
    used = sum(day.units for day in days if day.service == "tts")
    credit = max(await billing.credit(workspace_id), 0)
    return {
        "tier": current.plan.id,
        "character_count": used,
        "character_limit": used + credit // max(billing.cost("tts", 1), 1),
        "next_character_count_reset_unix": round(current.next_billing_date.timestamp()),
        **ALWAYS["subscription"],
    }


def _voice(voice: AvailableVoice) -> Json:
    info = voice.info
    model_id = voice.model.id
    labels = {"gender": info.gender, "accent": info.accent.lower(), "language": voice.language}
    return {
        "voice_id": voice.id,
        "name": info.name,
        "category": "premade" if voice.custom is None else "cloned",
        "description": info.description or "",
        "labels": labels,
        "high_quality_base_model_ids": [model_id],
        "verified_languages": [{"language": voice.language, "model_id": model_id}],
        **ALWAYS["voice"],
    }


def _model(info: ModelInfo) -> Json:
    languages = [name_language(code) for code in info.languages]
    return {
        "model_id": info.id,
        "name": info.id,
        "description": info.engine,
        "maximum_text_length_per_request": TEXT_CHARACTERS,
        "languages": [{"language_id": lang.code, "name": lang.name} for lang in languages],
        **ALWAYS["model"],
    }


PATH = "/v1/pronunciation-dictionaries"
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
        """Converts the rule, which is the one of that index. Raises ApiError(validation_error)."""
        fields = self.model_dump(include={self.type, "alphabet", "case_sensitive"})
        try:
            return validated(Pronunciation, {"grapheme": self.string_to_replace, **fields})
        except ApiError as error:
            raise InvalidField(f"rules.{number}", error.message) from None


class DictionaryRules(RequestModel):
    """A complete pronunciation dictionary."""

    name: Name
    rules: list[DictionaryRule] = Field(min_length=1, max_length=MAX_ENTRIES)


class DictionaryFields(BaseModel):
    """The form fields of an upload, without the file."""

    name: Name


class DictionariesQuery(DialectQuery):
    """The page of a list of dictionaries."""

    cursor: Annotated[str, Field(pattern="^([1-9][0-9]{0,5})?$")] = ""
    page_size: int = Field(default=30, ge=1, le=100)


@router.post(f"{PATH}/add-from-rules", summary="Create a pronunciation dictionary from rules")
async def add_from_rules(body: DictionaryRules, principal: PrincipalDep, speech: SpeechDep) -> Json:
    entries = [rule.entry(number) for number, rule in enumerate(body.rules)]
    row = await speech.dictionaries.save(principal.workspace_id, body.name, entries)
    return _dictionary(row, "")


@router.post(
    f"{PATH}/add-from-file",
    summary="Create a pronunciation dictionary from a PLS file",
    openapi_extra=form_schema("file", DictionaryFields, BINARY | {"description": "PLS 1.0 file."}),
)
async def add_from_file(request: Request, principal: PrincipalDep, speech: SpeechDep) -> Json:
    async with receive_form(request, UploadLimits(max_file_bytes=MAX_FILE_BYTES)) as form:
        name = validated(DictionaryFields, form.fields).name
        data = await to_thread.run_sync(form.file("file").path.read_bytes)
    try:
        entries = await to_thread.run_sync(read_pls, data.decode())
    except UnicodeDecodeError:
        raise InvalidField("file", "must be UTF-8") from None
    return _dictionary(await speech.dictionaries.save(principal.workspace_id, name, entries), "")


@router.get(PATH, summary="List pronunciation dictionaries, for ElevenLabs' clients")
async def list_dictionaries(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[DictionariesQuery, Query()]
) -> Json:
    page = int(query.cursor or 1)
    rows, total = await speech.dictionaries.page(principal.workspace_id, page, query.page_size)
    has_more = page * query.page_size < total
    return {
        "pronunciation_dictionaries": [_dictionary(row) for row in rows],
        "has_more": has_more,
        "next_cursor": str(page + 1) if has_more else None,
    }


@router.get(f"{PATH}/{{dictionary_id:uuid}}", summary="Get a pronunciation dictionary's rules")
async def get_dictionary(dictionary_id: UUID, principal: PrincipalDep, speech: SpeechDep) -> Json:
    dictionary = DictionaryRef(id=str(dictionary_id))
    row, entries = await speech.dictionaries.read(principal.workspace_id, dictionary)
    return {**_dictionary(row), "rules": [rule for entry in entries for rule in _rules(entry)]}


@router.get(
    f"{PATH}/{{dictionary_id:uuid}}/{{number}}/download",
    summary="Download a version of a pronunciation dictionary as PLS",
    response_class=Response,
    responses={200: {"content": {"application/pls+xml": {"schema": {"type": "string"}}}}},
)
async def download_dictionary(
    dictionary_id: UUID,
    number: Annotated[int, Path(ge=1, le=1_000_000_000, description="Version (`version_id`).")],
    principal: PrincipalDep,
    speech: SpeechDep,
) -> Response:
    dictionary = DictionaryRef(id=str(dictionary_id), version=number)
    _, entries = await speech.dictionaries.read(principal.workspace_id, dictionary)
    return Response(write_pls(entries), media_type="application/pls+xml")


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
