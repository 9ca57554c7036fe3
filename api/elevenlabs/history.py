"""ElevenLabs' history: the speech that a workspace keeps, its audio, and downloads."""

import asyncio
import io
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from zipfile import ZipFile, ZipInfo

from fastapi import Query
from pydantic import Field
from starlette.responses import JSONResponse, Response

from api.dialects.requests import DialectQuery
from api.elevenlabs.options import MEDIA_TYPES, SCHEMES
from api.http.bodies import RequestModel
from api.http.errors import CODED, to_api_error
from api.http.routing import PrincipalDep, SpeechDep, make_router
from api.http.streaming import CutShort, StreamedResponse
from db.voices.history import HistoryFilter
from pipelines.tts.history import HistoryPage, KeptAudio, KeptSpeech

router = make_router("ElevenLabs' dialect", scope="tts", schemes=SCHEMES)

PATH = "/v1/history"
ITEM = f"{PATH}/{{history_item_id}}"
MAX_DOWNLOADS = 100
ItemId = Annotated[str, Field(max_length=40, pattern="^[0-9a-f]*$")]
ModelOrVoice = Annotated[str, Field(max_length=200)]
UnixTime = Annotated[int, Field(ge=0, le=253_402_300_799)]
AUDIO: dict[str, Any] = {
    "response_class": Response,
    "responses": {
        200: {
            "description": "The audio of one item, or a ZIP file of several items",
            "content": {
                media_type: {"schema": {"type": "string", "format": "binary"}}
                for media_type in (*MEDIA_TYPES, "application/zip")
            },
        }
    },
}

Json = dict[str, Any]


class HistoryQuery(DialectQuery):
    page_size: int = Field(default=100, ge=1, le=1000)
    start_after_history_item_id: ItemId = ""
    voice_id: ModelOrVoice | None = None
    model_id: ModelOrVoice | None = None
    date_before_unix: UnixTime | None = None
    date_after_unix: UnixTime | None = None
    sort_direction: Literal["asc", "desc"] = "desc"
    search: str = Field(default="", max_length=200)
    source: Literal["TTS", "STS", "Flows"] | None = None

    def filter(self) -> HistoryFilter:
        return HistoryFilter(
            voice_id=self.voice_id,
            model_id=self.model_id,
            source=self.source,
            since=_moment(self.date_after_unix),
            before=_moment(self.date_before_unix),
            start_after=self.start_after_history_item_id,
            is_ascending=self.sort_direction == "asc",
        )


class HistoryDownload(RequestModel):
    """The items to download, in their own format."""

    history_item_ids: list[str] = Field(min_length=1, max_length=MAX_DOWNLOADS)
    output_format: Literal["default"] | None = Field(
        default=None, description="`default`: each item keeps its stored format."
    )


@router.get(PATH, summary="List the speech history, for ElevenLabs' clients", response_model=Json)
async def list_history(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[HistoryQuery, Query()]
) -> Response:
    """The list is empty unless the workspace has set `speech_history_days`.

    A search reads at most 1,000 items for a page, and a page ends after 1 MB of texts. With
    `has_more`, a page may therefore have fewer items than `page_size`, or none."""
    page = await speech.history.page(principal, query.filter(), query.page_size, query.search)
    return await asyncio.to_thread(_listing, page)


@router.get(ITEM, summary="Get an item of the speech history, for ElevenLabs' clients")
async def get_item(history_item_id: str, principal: PrincipalDep, speech: SpeechDep) -> Json:
    (kept,) = await speech.history.find(principal, [history_item_id])
    return _item(kept)


@router.get(f"{ITEM}/audio", summary="Get the audio of an item of the speech history", **AUDIO)
async def get_audio(history_item_id: str, principal: PrincipalDep, speech: SpeechDep) -> Response:
    (kept,) = await speech.history.find(principal, [history_item_id])
    return _audio(kept, await speech.history.audio(kept))


@router.delete(ITEM, summary="Delete an item of the speech history, for ElevenLabs' clients")
async def delete_item(history_item_id: str, principal: PrincipalDep, speech: SpeechDep) -> Json:
    await speech.history.delete(principal, history_item_id)
    return {"status": "ok"}


@router.post(f"{PATH}/download", summary="Download items of the speech history", **AUDIO)
async def download(body: HistoryDownload, principal: PrincipalDep, speech: SpeechDep) -> Response:
    """Returns the audio of one item as it is, and that of several as a ZIP file."""
    kept = await speech.history.find(principal, list(dict.fromkeys(body.history_item_ids)))
    audio = [await speech.history.audio(each) for each in kept]
    if len(kept) == 1:
        return _audio(kept[0], audio[0])
    return StreamedResponse(_zipped(kept, audio), media_type="application/zip")


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _listing(page: HistoryPage) -> Response:
    """Writes a page; blocking, since it may have 1 MB."""
    last = page.last
    return JSONResponse(
        {
            "history": [_item(kept) for kept in page.speeches],
            "last_history_item_id": last and last.id,
            "has_more": page.has_more,
            "scanned_until": last and round(last.created_at.timestamp()),
        }
    )


def _item(kept: KeptSpeech) -> Json:
    row = kept.item
    details = kept.details
    is_dialogue = bool(details.lines)
    return {
        "history_item_id": row.id,
        "request_id": details.request_id,
        "voice_id": None if is_dialogue else row.voice_id,
        "voice_name": None if is_dialogue else details.voice_name,
        "voice_category": "cloned" if details.is_custom else "premade",
        "model_id": row.model_id,
        "text": None if is_dialogue else details.text,
        "dialogue": [line.model_dump() for line in details.lines] if is_dialogue else None,
        "date_unix": round(row.created_at.timestamp()),
        "character_count_change_from": 0,
        "character_count_change_to": details.characters,
        "content_type": details.media_type,
        "output_format": details.output_format,
        "state": "created",
        "settings": {"speed": details.speed, "stability": details.stability},
        "source": row.source,
        "share_link_id": None,
        "feedback": None,
        "alignments": None,
    }


def _name(kept: KeptSpeech) -> str:
    codec = kept.details.output_format.partition("_")[0]
    return f"{kept.item.created_at:%Y-%m-%dT%H-%M-%S}_{kept.item.id}.{codec}"


def _audio(kept: KeptSpeech, audio: KeptAudio) -> Response:
    response = StreamedResponse(_pieces(audio), media_type=kept.details.media_type)
    response.headers["content-length"] = str(audio.size)
    response.headers["content-disposition"] = f'attachment; filename="{_name(kept)}"'
    return response


async def _pieces(audio: KeptAudio) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(audio.pieces) as pieces:
            async for piece in pieces:
                yield piece
    except CODED as error:
        raise CutShort(to_api_error(error).code) from None


class _Archive(io.RawIOBase):
    """A non-seekable file, whose bytes are taken as they are written."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: Any) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


async def _zipped(
    kept: Sequence[KeptSpeech], audio: Sequence[KeptAudio]
) -> AsyncGenerator[bytes, None]:
    """Yields an uncompressed ZIP file, with only a piece of one file in memory at a time."""
    output = _Archive()
    with ZipFile(output, "w") as archive:
        for each, of_item in zip(kept, audio, strict=True):
            info = ZipInfo(_name(each), each.item.created_at.timetuple()[:6])
            with archive.open(info, "w") as entry:
                async with aclosing(_pieces(of_item)) as pieces:
                    async for piece in pieces:
                        entry.write(piece)
                        yield output.take()
    yield output.take()
