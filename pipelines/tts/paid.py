"""Paid synthesis: its charge, its webhook events, and the stored audio that they link to."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from db.errors import DatabaseError
from db.webhooks import NewEvent
from pipelines.audio.encode.encoder import CODECS, EncodedAudio, FileWriter, OutputFormat
from pipelines.billing.billing import Billing, Charge
from pipelines.billing.operation import Operation
from pipelines.errors import FileTooLarge, StorageLimit, StorageUnavailable
from pipelines.storage.files import Files
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.shaping import SpokenChunk, TimedWord
from pipelines.webhooks.events import WebhookEvents, failure_event

logger = logging.getLogger(__name__)

COPY_FORMAT: OutputFormat = "mp3"  # the stored copy of a stream
COPY_S = 3600.0  # a longer stream gets no copy, which is on disk until its end: 29 MB an hour
URL_LASTS_S = 24 * 3600.0


@dataclass(eq=False, repr=False)
class PaidSynthesis:
    """Charges for characters, and writes the events `tts.completed` and `tts.failed`."""

    pipeline: SpeechPipeline
    billing: Billing
    files: Files
    events: WebhookEvents

    async def plan(
        self, request: SpeechRequest, workspace_id: int, *, early_start: bool = False
    ) -> SpeechPlan:
        """Call `SpeechPipeline.plan`; write `tts.failed` if the service fails."""
        async with self.events.recording(workspace_id, "tts.failed", voice_id=request.voice_id):
            return await self.pipeline.plan(request, early_start=early_start)

    @asynccontextmanager
    async def pay(
        self, workspace_id: int, operation: Operation, plan: SpeechPlan
    ) -> AsyncIterator["PaidSpeech"]:
        """Hold the price of the text while it is spoken. Failures of the service are not charged; a
        client that disconnects, or deletes the voice, is charged for the audio so far. Raises
        InsufficientCredit or DatabaseUnavailable."""
        keeps_copy = await self.events.wants(workspace_id, "tts.completed")
        charge = await self.billing.hold(
            workspace_id,
            "tts",
            self.characters(plan),
            operation,
            failed=partial(failure_event, "tts.failed", voice_id=plan.voice.id),
        )
        async with charge:
            copy = FileWriter(COPY_FORMAT) if keeps_copy else None
            yield PaidSpeech(charge, self, plan, copy)

    def characters(self, plan: SpeechPlan) -> int:
        """Return the characters that are charged: those of the text without markup, or a share of
        the spoken letters if that is more."""
        typed = sum(len(passage.text) for passage in plan.passages)
        return self.billing.speech_characters(typed, plan.letters)

    async def speak_file(
        self,
        plan: SpeechPlan,
        workspace_id: int,
        operation: Operation,
        output_format: OutputFormat,
        most_bytes: int = sys.maxsize,
    ) -> tuple[tuple[TimedWord, ...], EncodedAudio]:
        """Speak the text as one file, and return its words and the paid speech. Raises FileTooLarge
        beyond `most_bytes`, and as `pay` and `SpeechPipeline.speak`."""
        writer = FileWriter(output_format)
        async with self.pay(workspace_id, operation, plan) as paid:
            words = await self.pipeline.speak(plan, writer.add, paid.count_whole)
            file = await asyncio.to_thread(writer.finish)
            if file.file.size > most_bytes:
                size = f"{file.file.size / 2**20:.1f} MB of {output_format}"
                message = f"the speech has {size}, and at most {most_bytes >> 20} MB are sent"
                raise FileTooLarge(message)
            await paid.complete(file)
        return words, file

    async def start_stream(
        self, request: SpeechRequest, workspace_id: int, operation: Operation
    ) -> tuple[SpeechPlan, SpokenChunk, AsyncGenerator[SpokenChunk, None]]:
        """Return the plan, the first chunk of the paid speech, and a generator of the others.

        An early end charges for the chunks that were taken. Raises as `SpeechPipeline.plan` and
        `SpeechPipeline.stream`, InsufficientCredit or DatabaseUnavailable."""
        plan = await self.plan(request, workspace_id, early_start=True)
        chunks = self._stream(plan, workspace_id, operation)
        try:
            return plan, await anext(chunks), chunks
        except BaseException:
            await chunks.aclose()
            raise

    async def _stream(
        self, plan: SpeechPlan, workspace_id: int, operation: Operation
    ) -> AsyncGenerator[SpokenChunk, None]:
        async with self.pay(workspace_id, operation, plan) as paid:
            async with aclosing(self.pipeline.stream(plan)) as chunks:
                async for chunk in chunks:
                    await paid.count(chunk)
                    paid.count_sent(chunk)
                    yield chunk
            await paid.complete()


@dataclass(slots=True)
class PaidSpeech:
    """A text while it is spoken, and its charge."""

    charge: Charge
    synthesis: PaidSynthesis
    plan: SpeechPlan
    copy: FileWriter | None = None  # stored if a webhook subscribes to `tts.completed`
    spoken_s: float = 0.0  # audio that was counted
    is_copied: bool = True  # whether the copy, if there is one, has all of that audio

    async def count(self, chunk: SpokenChunk) -> None:
        """Count a chunk as it is synthesised."""
        self.count_whole(chunk)
        self.spoken_s += chunk.audio.duration_s
        self.is_copied = self.is_copied and self.spoken_s <= COPY_S
        if self.copy is not None and self.is_copied:
            with self._copying():
                await asyncio.to_thread(self.copy.add, chunk.audio)

    def count_whole(self, chunk: SpokenChunk) -> None:
        """Count a chunk of an answer that is sent as a whole."""
        self.charge.progress(self._units_up_to(chunk), is_sent=False)

    def count_sent(self, chunk: SpokenChunk) -> None:
        """Count a chunk whose next piece is sent now."""
        self.charge.progress(self._units_up_to(chunk))

    def _units_up_to(self, chunk: SpokenChunk) -> int:
        """Return the characters that are charged up to the end of a chunk. They are the share of
        the characters typed up to there, or the letters spoken up to there if these cost more. A
        text may begin with its most expensive part, and end with markup that is never spoken."""
        units = self.charge.units
        passages = self.plan.passages
        typed = self.plan.typed_up_to(chunk.text_end)
        share = -(-typed * units // sum(len(passage.text) for passage in passages))
        spoken = self.synthesis.billing.speech_characters(0, chunk.letters)
        # Cleaning may remove most of a long text: a chunk costs one character at least.
        return max(share, min(spoken, units), 1)

    async def complete(self, file: EncodedAudio | None = None) -> None:
        """Charge for the whole text, and write `tts.completed` with a link to the audio. With a
        `file`, which is about to be sent, this raises DatabaseUnavailable: then the response must
        be that error. Without it, the chunks have already been sent."""
        capture = self.charge.capture_delivered if file is None else self.charge.capture
        events: list[NewEvent] = []
        if self.copy is not None:
            if file is None and self.is_copied:
                with self._copying():
                    file = await asyncio.to_thread(self.copy.finish)
            url = None if file is None else await self._store(file)
            data: dict[str, Any] = {
                "id": self.charge.operation,
                "text": self.plan.request.text,
                "voice_id": self.plan.voice.id,
                "audio_url": url,
                "duration": round(file.duration_s if file else self.spoken_s, 6),
            }
            events.append(NewEvent("tts.completed", data))
        await capture(self.charge.units, *events)

    @contextmanager
    def _copying(self) -> Iterator[None]:
        """Let a full disk cost the event its link, but not the client its stream."""
        try:
            yield
        except StorageUnavailable:
            self.is_copied = False

    async def _store(self, file: EncodedAudio) -> str | None:
        """Store the file; return its signed URL, or None if it cannot be stored."""
        files = self.synthesis.files
        workspace_id = self.charge.workspace_id
        media_type = CODECS[file.output_format].media_type
        try:
            file_id = await files.put(workspace_id, "speech", media_type, file.file, URL_LASTS_S)
        except (StorageLimit, StorageUnavailable, DatabaseError):
            logger.warning("speech_not_stored", exc_info=True)
            return None
        return files.url(file_id, workspace_id, URL_LASTS_S)
