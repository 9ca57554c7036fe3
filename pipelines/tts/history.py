"""The history of speech, with its audio, for workspaces that ask for it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakSet

from pydantic import BaseModel

from db.database import Database
from db.errors import DatabaseError
from db.voices.history import (
    HistoryFilter,
    HistoryItem,
    add_item,
    delete_items,
    find_items,
    list_items,
)
from models.fairness.shares import WorkspaceShares
from pipelines.accounts.authentication import Principal
from pipelines.audio.encode.encoder import write_wav_length
from pipelines.errors import NotFound, Overloaded, PipelineError, StorageUnavailable
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import UNFINISHED, Files
from pipelines.tasks import TaskSet
from pipelines.temporary_files import TemporaryFile
from pipelines.tts.session import SpeechStream
from telemetry import metrics
from telemetry.tracing import request_id

logger = logging.getLogger(__name__)

Source = Literal["TTS", "STS"]
MAX_BYTES = 64 * 2**20  # bytes of one speech; longer speech is not kept
MAX_TEXT = 10_000  # characters of a text that are kept
MAX_OPEN = 512  # speeches that a process has on disk; half for one workspace
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
    item: HistoryItem
    details: SpeechDetails


@dataclass(frozen=True, slots=True)
class KeptAudio:
    """The audio of an item, which is read piece by piece."""

    size: int  # bytes
    pieces: AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the history, and the last item that was read for it."""

    speeches: list[KeptSpeech]
    last: HistoryItem | None
    has_more: bool


def details_about(item_id: str) -> str:
    """Return the associated data of the encrypted details of an item."""
    return f"history:{item_id}"


@dataclass(eq=False, repr=False)
class SpeechRecord:
    """A copy of speech that is sent, on disk until it is stored in the history."""

    _history: "SpeechHistory"
    stream: SpeechStream
    _output_format: str
    _media_type: str
    source: Source
    _lines: list[SpokenLine]
    text: str = ""
    _file: TemporaryFile | None = None  # from the first audio on
    _size: int = 0
    _is_closed: bool = False
    _request_id: str = field(default_factory=lambda: request_id.get() or "")
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def add(self, data: bytes) -> None:
        """Copy audio that is sent. After a failure, only the history lacks the speech."""
        self._size += len(data)
        if self._size > MAX_BYTES:
            self.close()
        if self._is_closed:
            return
        try:
            if self._file is None:
                self._file = self._history.open_file(self)
            self._file.write(data)
        except (OSError, PipelineError) as error:
            self._history.drop(self, error)

    def add_text(self, text: str) -> None:
        self.text = (self.text + text)[:MAX_TEXT]

    def keep(self, text: str = "") -> None:
        """Store the copy in the background, with `text` added. Any thread may call this."""
        self.add_text(text)
        if self._file is not None and not self._is_closed:
            self._loop.call_soon_threadsafe(self._history.store, self, self._file)

    def close(self) -> None:
        """Delete the copy, which is stored or not wanted."""
        self._is_closed = True
        self._history.open_records.discard(self)
        if self._file is not None:
            self._file.close()

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
    open_records: WeakSet[SpeechRecord] = field(default_factory=WeakSet)  # records with a file
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
        return SpeechRecord(self, stream, output_format, media_type, source, list(lines))

    def open_file(self, record: SpeechRecord) -> TemporaryFile:
        """Open the file of a record. Raises Overloaded if too many are open, or OSError."""
        workspace_id = record.stream.workspace_id
        own = sum(other.stream.workspace_id == workspace_id for other in self.open_records)
        if own >= MAX_OPEN // 2 or len(self.open_records) >= MAX_OPEN:
            raise Overloaded("too many speeches are recorded")
        file = TemporaryFile()
        file.rollover()  # takes no memory, however many streams there are
        self.open_records.add(record)
        return file

    def store(self, record: SpeechRecord, file: TemporaryFile) -> None:
        """Store a record in a task, or drop it if the workspace has too many."""
        workspace_id = record.stream.workspace_id
        if self._shares.may_take(workspace_id, 1, MAX_STORING):
            self._shares.take(workspace_id, 1)
            self._tasks.start(self._store(record, file), detached=True)
        else:
            self.drop(record, Overloaded("too many speeches are stored"))

    def drop(self, record: SpeechRecord, error: Exception) -> None:
        """Count and log a speech that cannot be kept, and delete its copy."""
        record.close()
        metrics.history_dropped.inc()
        unforeseen = None if isinstance(error, (OSError, PipelineError, DatabaseError)) else error
        extra = {"workspace": record.stream.workspace_id, "cause": type(error).__name__}
        logger.warning("speech_not_kept", exc_info=unforeseen, extra=extra)

    async def join(self) -> None:
        """Wait until all records are stored, or dropped."""
        await self._tasks.join()

    async def page(
        self, principal: Principal, which: HistoryFilter, limit: int, search: str = ""
    ) -> HistoryPage:
        """Read at most `limit` items and about PAGE_BYTES; a search reads SCANNED at most."""
        most = max(limit, SCANNED) if search else limit
        items, has_more = await self._database.read(list_items, principal.workspace_id, which, most)
        return await asyncio.to_thread(self._matches, items, search, limit, has_more)

    async def find(self, principal: Principal, item_ids: list[str]) -> list[KeptSpeech]:
        rows = await self._database.read(find_items, principal.workspace_id, item_ids)
        if not rows.keys() >= set(item_ids):
            raise NotFound(NO_ITEM)
        return [self._open(rows[item_id]) for item_id in item_ids]

    async def audio(self, speech: KeptSpeech) -> KeptAudio:
        """Open the audio of an item. Its pieces may raise NotFound or StorageUnavailable."""
        file = await self._files.find(speech.item.workspace_id, speech.item.file_id)
        return KeptAudio(file.size, self._files.pieces(file, 0, file.size))

    async def delete(self, principal: Principal, item_id: str) -> None:
        (speech,) = await self.find(principal, [item_id])
        await self._database.run(delete_items, {item_id: speech.item.file_id})
        with suppress(StorageUnavailable):  # otherwise housekeeping deletes it
            await self._files.delete(principal.workspace_id, speech.item.file_id)
        await self._database.forget_deleted()

    async def _store(self, record: SpeechRecord, file: TemporaryFile) -> None:
        stream = record.stream
        workspace_id = stream.workspace_id
        try:
            details = record.details
            if details.media_type == "audio/wav":
                await asyncio.to_thread(write_wav_length, file)
            file_id = await self._files.put(
                workspace_id, "history", details.media_type, file, UNFINISHED.total_seconds()
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
        except Exception as error:  # nothing awaits this task
            self.drop(record, error)
        finally:
            record.close()
            self._shares.give_back(workspace_id, 1)

    def _matches(
        self, items: list[HistoryItem], search: str, limit: int, has_more: bool
    ) -> HistoryPage:
        """Return a page of the items whose text or voice contains `search`; blocking."""
        speeches: list[KeptSpeech] = []
        for number, item in enumerate(items, 1):
            speech = self._open(item)
            details = speech.details
            texts = (details.text, details.voice_name, *(line.text for line in details.lines))
            if any(search.casefold() in text.casefold() for text in texts):
                speeches.append(speech)
            if len(speeches) == limit:
                return HistoryPage(speeches, item, has_more or number < len(items))
        return HistoryPage(speeches, items[-1] if items else None, has_more)

    def _open(self, item: HistoryItem) -> KeptSpeech:
        data = self._encryption.decrypt(item.details, details_about(item.id))
        return KeptSpeech(item, SpeechDetails.model_validate_json(data))
