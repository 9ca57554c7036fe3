"""The history of speech, with its audio, for workspaces that ask for it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel

from db.database import Database, utc_now
from db.errors import DatabaseError
from db.voices.history import HistoryItem, add_item, delete_items, find_items, list_items
from models.fairness.shares import WorkspaceShares
from pipelines.accounts.authentication import Principal
from pipelines.errors import NotFound, StorageLimit, StorageUnavailable
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import UNFINISHED, Files
from pipelines.tasks import TaskSet
from pipelines.temporary_files import TemporaryFile
from pipelines.tts.session import SpeechStream
from telemetry import metrics
from telemetry.tracing import request_id

logger = logging.getLogger(__name__)

Source = Literal["TTS", "STS"]
MAX_BYTES = 64 * 2**20  # of one speech; longer ones are not kept
MAX_TEXT = 10_000  # characters of a text that are kept
MAX_STORING = 64  # speeches that a process stores at once; half for one workspace
SCANNED = 1000  # items that one search reads
NO_ITEM = "the history has no item with that id"


class SpokenLine(BaseModel):
    """A line of a dialogue."""

    text: str
    voice_id: str
    voice_name: str


class SpeechDetails(BaseModel):
    """What is kept of a speech beside its audio and the columns of its item."""

    text: str
    voice_name: str
    is_custom: bool
    characters: int
    speed: float
    stability: float
    media_type: str
    output_format: str
    request_id: str
    lines: list[SpokenLine] = []


@dataclass(frozen=True, slots=True)
class KeptSpeech:
    """An item of the history."""

    item: HistoryItem
    details: SpeechDetails


@dataclass(frozen=True, slots=True)
class KeptAudio:
    """The audio of an item, which is read piece by piece."""

    size: int  # bytes
    pieces: AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """The choice of items of the history, and their order."""

    voice_id: str | None = None
    model_id: str | None = None
    source: str | None = None
    search: str = ""
    since: datetime | None = None
    before: datetime | None = None
    start_after: str = ""
    is_ascending: bool = False


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the history, and the last item that was read for it."""

    speeches: list[KeptSpeech]
    last: HistoryItem | None
    has_more: bool


def details_about(item_id: str) -> str:
    """Return the associated data of the encrypted details of an item."""
    return f"history:{item_id}"


class SpeechRecord:
    """A copy of speech that is sent, on disk until it is stored in the history."""

    def __init__(
        self,
        history: "SpeechHistory",
        stream: SpeechStream,
        output_format: str,
        media_type: str,
        source: Source = "TTS",
        lines: Sequence[SpokenLine] = (),
    ) -> None:
        self.text = ""
        self.file = TemporaryFile()
        self.file.rollover()  # takes no memory, however many streams there are
        self.stream = stream
        self.source = source
        self._history = history
        self._loop = asyncio.get_running_loop()
        self._size = 0
        self._is_whole = True
        self._output_format = output_format
        self._media_type = media_type
        self._lines = list(lines)
        self._request_id = request_id.get() or ""

    def add(self, data: bytes) -> None:
        """Copy audio that is sent."""
        self._size += len(data)
        try:
            self._is_whole = self._is_whole and self._size <= MAX_BYTES
            if self._is_whole:
                self.file.write(data)
        except StorageUnavailable:  # a full disk costs the history a speech, not the client
            self._is_whole = False

    def add_text(self, text: str) -> None:
        """Add text that is spoken."""
        self.text = (self.text + text)[:MAX_TEXT]

    def keep(self, text: str = "") -> None:
        """Store the copy in the background, with `text` added. Any thread may call this."""
        self.add_text(text)
        if self._size and self._is_whole:
            self._loop.call_soon_threadsafe(self._history.store, self)

    @property
    def details(self) -> SpeechDetails:
        voice = self.stream.voice
        style = self.stream.style
        return SpeechDetails(
            text="" if self._lines else self.text,
            voice_name=voice.info.name,
            is_custom=voice.custom is not None,
            characters=max(self.stream.charged, len(self.text)),
            speed=style.speed,
            stability=style.stability,
            media_type=self._media_type,
            output_format=self._output_format,
            request_id=self._request_id,
            lines=self._lines,
        )


@dataclass(eq=False, repr=False)
class SpeechHistory:
    """Stores, lists and deletes speech. Methods raise DatabaseUnavailable, and NotFound for an item
    that is not the workspace's."""

    _database: Database
    _encryption: Encryption
    _files: Files
    _tasks: TaskSet = field(default_factory=TaskSet)
    _shares: WorkspaceShares = field(default_factory=WorkspaceShares)

    def begin(
        self,
        principal: Principal,
        stream: SpeechStream,
        output_format: str,
        media_type: str,
        source: Source = "TTS",
        lines: Sequence[SpokenLine] = (),
    ) -> SpeechRecord | None:
        """Begin a record of a stream; None if the workspace keeps no speech."""
        if not principal.speech_history_days or principal.retention == "zero":
            return None
        return SpeechRecord(self, stream, output_format, media_type, source, lines)

    def store(self, record: SpeechRecord) -> None:
        """Store a record in a task, or drop it if the workspace has too many."""
        workspace_id = record.stream.workspace_id
        if self._shares.may_take(workspace_id, 1, MAX_STORING):
            self._shares.take(workspace_id, 1)
            self._tasks.start(self._store(record), detached=True)
        else:
            self._drop(record, "overload")

    async def join(self) -> None:
        """Wait until all records are stored, or dropped."""
        await self._tasks.join()

    async def page(self, principal: Principal, which: HistoryFilter, limit: int) -> HistoryPage:
        """Read a page. A search reads at most SCANNED items, so that a page may have fewer than
        `limit` and be followed by others."""
        most = max(limit, SCANNED) if which.search else limit
        since = _since(principal)
        rows = await self._database.read(
            list_items,
            principal.workspace_id,
            since=max(since, which.since or since),
            before=which.before,
            start_after=which.start_after,
            is_ascending=which.is_ascending,
            limit=most + 1,
            voice_id=which.voice_id,
            model_id=which.model_id,
            source=which.source,
        )
        speeches = await asyncio.to_thread(self._matches, rows[:most], which.search, limit + 1)
        if len(speeches) > limit:
            return HistoryPage(speeches[:limit], speeches[limit - 1].item, has_more=True)
        last = rows[:most][-1] if rows else None
        return HistoryPage(speeches, last, has_more=len(rows) > most)

    async def find(self, principal: Principal, item_ids: list[str]) -> list[KeptSpeech]:
        """Find items by their ids, in their order."""
        since = _since(principal)
        rows = await self._database.read(find_items, principal.workspace_id, item_ids, since)
        if not rows.keys() >= set(item_ids):
            raise NotFound(NO_ITEM)
        return [self._open(rows[item_id]) for item_id in item_ids]

    async def audio(self, speech: KeptSpeech) -> KeptAudio:
        """Open the audio of an item. Its pieces may raise NotFound or StorageUnavailable."""
        file = await self._files.find(speech.item.workspace_id, speech.item.file_id)
        return KeptAudio(file.size, self._files.pieces(file, 0, file.size))

    async def delete(self, principal: Principal, item_id: str) -> None:
        """Delete an item, and its audio."""
        (speech,) = await self.find(principal, [item_id])
        await self._database.run(delete_items, [speech.item])
        with suppress(StorageUnavailable):  # otherwise housekeeping deletes it
            await self._files.delete(principal.workspace_id, speech.item.file_id)
        await self._database.forget_deleted()

    async def _store(self, record: SpeechRecord) -> None:
        stream = record.stream
        workspace_id = stream.workspace_id
        details = record.details
        lasts_s = UNFINISHED.total_seconds()
        try:
            file_id = await self._files.put(
                workspace_id, "history", details.media_type, record.file, lasts_s
            )
            item = HistoryItem(
                workspace_id=workspace_id,
                file_id=file_id,
                source=record.source,
                voice_id="" if details.lines else stream.voice.id,
                model_id=stream.voice.model.id,
                details=b"",
            )
            text = details.model_dump_json().encode()
            item.details = self._encryption.encrypt(text, details_about(item.id))
            await self._database.run(add_item, item)
        except (StorageLimit, StorageUnavailable, DatabaseError) as error:
            self._drop(record, type(error).__name__)
        finally:
            record.file.close()
            self._shares.give_back(workspace_id, 1)

    def _drop(self, record: SpeechRecord, cause: str) -> None:
        metrics.history_dropped.inc()
        extra = {"workspace": record.stream.workspace_id, "cause": cause}
        logger.warning("speech_not_kept", extra=extra)

    def _matches(self, rows: list[HistoryItem], search: str, most: int) -> list[KeptSpeech]:
        """Return the items whose text or voice contains `search`; blocking."""
        matches: list[KeptSpeech] = []
        for row in rows:
            speech = self._open(row)
            details = speech.details
            texts = (details.text, details.voice_name, *(line.text for line in details.lines))
            if any(search.casefold() in text.casefold() for text in texts):
                matches.append(speech)
            if len(matches) == most:
                break
        return matches

    def _open(self, row: HistoryItem) -> KeptSpeech:
        data = self._encryption.decrypt(row.details, details_about(row.id))
        return KeptSpeech(row, SpeechDetails.model_validate_json(data))


def _since(principal: Principal) -> datetime:
    """Return the time from which on the workspace keeps speech."""
    return utc_now() - timedelta(days=principal.speech_history_days)
