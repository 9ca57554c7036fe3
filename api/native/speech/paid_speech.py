"""Speech that is paid for, and what webhooks are told of it; the same for files and streams."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from anyio import to_thread

from db.errors import DatabaseError
from db.webhooks.outbox import NewEvent
from pipelines.audio.encode.files import CODECS, EncodedAudio, FileWriter, OutputFormat
from pipelines.billing.billing import HOLD_S, Billing, Charge, IdempotentOperation
from pipelines.errors import StorageUnavailable
from pipelines.storage.files import Files
from pipelines.tts.chunks import SpokenChunk
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan, SpeechRequest
from pipelines.webhooks.failure_events import FailureEvents, failure_event
from pipelines.webhooks.registration import Webhooks

logger = logging.getLogger(__name__)

KEPT_FORMAT: OutputFormat = "mp3"  # of what was streamed
ADDRESS_LASTS_S = 24 * 3600.0
HELD_S_PER_CHARACTER = 0.2  # thrice as long as speech takes: clients may read slowly


class PaidSpeech:
    """One text while it is spoken, as a context: its charge, and a copy when a webhook wants it.

    A failure is free, and one of the service is `tts.failed`; who leaves pays for what was spoken.
    """

    def __init__(
        self,
        billing: Billing,
        files: Files,
        workspace_id: int,
        text: str,
        voice_id: str,
        *,
        wanted: bool,
    ) -> None:
        self._billing = billing
        self._files = files
        self._workspace_id = workspace_id
        self._text = text
        self._voice_id = voice_id
        self._copy = FileWriter(KEPT_FORMAT) if wanted else None
        self._charge: Charge

    async def begin(self, operation: IdempotentOperation | None) -> Self:
        """Holds the price of the text. Raises InsufficientCredit or DatabaseUnavailable."""
        self._charge = await self._billing.hold(
            self._workspace_id,
            "tts",
            len(self._text),
            operation=operation,
            lasts_s=HOLD_S + len(self._text) * HELD_S_PER_CHARACTER,
            failed=partial(failure_event, "tts.failed", voice_id=self._voice_id),
        )
        return self

    @property
    def sounded(self) -> bool:
        """Whether anything of it was heard."""
        return self._charge.used > 0

    async def hear(self, chunk: SpokenChunk) -> None:
        """Counts what a listener is about to get."""
        # A piece may be all that cleaning left of a long stretch: it costs one character at least.
        self._charge.used = max(self._charge.used, chunk.text_end, 1)
        if self._copy is not None:
            await to_thread.run_sync(self._copy.add, chunk.audio)

    async def done(self, file: EncodedAudio | None = None) -> None:
        """Charges for the whole text; the event tells where the file, or else the copy, lies.

        `file` is what is answered next; without one all of it was sent. Raises DatabaseUnavailable
        when it is the former.
        """
        charge = self._charge.capture_delivered if file is None else self._charge.capture
        events: list[NewEvent] = []
        if self._copy is not None:
            if file is None:
                file = await to_thread.run_sync(self._copy.finish)
            events.append(self._completed(file, await self._store(file)))
        await charge(len(self._text), *events)

    async def __aenter__(self) -> Self:
        await self._charge.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._charge.__aexit__(kind, error, traceback)

    async def _store(self, file: EncodedAudio) -> str | None:
        """A signed address; None when the file cannot be kept, which fails nothing else."""
        files, media_type = self._files, CODECS[file.output_format].media_type
        try:
            file_id = await files.put(
                self._workspace_id, "speech", media_type, file.data, ADDRESS_LASTS_S
            )
        except (StorageUnavailable, DatabaseError):
            logger.warning("speech_not_kept", exc_info=True)
            return None
        return files.url(file_id, self._workspace_id, ADDRESS_LASTS_S)

    def _completed(self, file: EncodedAudio, address: str | None) -> NewEvent:
        data: dict[str, Any] = {
            "id": self._charge.operation,
            "text": self._text,
            "voice_id": self._voice_id,
            "audio_url": address,
            "duration": round(file.duration_s, 6),
        }
        return NewEvent("tts.completed", data)


@dataclass(frozen=True, slots=True)
class PaidSynthesis:
    """Speech synthesis with its charge, its webhook events and the stored copy they link to."""

    pipeline: SpeechPipeline
    billing: Billing
    files: Files
    webhooks: Webhooks
    failures: FailureEvents

    async def plan(
        self, request: SpeechRequest, workspace_id: int, *, early_start: bool = False
    ) -> SpeechPlan:
        """As `SpeechPipeline.plan`; sends `tts.failed` when the service fails."""
        async with self.failures.recording(workspace_id, "tts.failed", voice_id=request.voice_id):
            return await self.pipeline.plan(request, early_start=early_start)

    async def pay(
        self, workspace_id: int, operation: IdempotentOperation | None, text: str, voice_id: str
    ) -> PaidSpeech:
        """The paid speech of `text`. Raises InsufficientCredit or DatabaseUnavailable."""
        wanted = await self.webhooks.wants(workspace_id, "tts.completed")
        paid = PaidSpeech(self.billing, self.files, workspace_id, text, voice_id, wanted=wanted)
        return await paid.begin(operation)

    async def begin_stream(
        self,
        request: SpeechRequest,
        workspace_id: int,
        operation: IdempotentOperation | None,
    ) -> tuple[SpeechPlan, SpokenChunk, AsyncGenerator[SpokenChunk, None]]:
        """Paid speech whose first chunk is made already, and what comes after it.

        Closing the rest early charges for what was taken of it. Raises as `SpeechPipeline.plan` and
        `SpeechPipeline.stream`, InsufficientCredit or DatabaseUnavailable.
        """
        plan = await self.plan(request, workspace_id, early_start=True)
        voice_id = plan.voice.voice.voice_id
        paid = await self.pay(workspace_id, operation, request.text, voice_id)
        chunks = _paid_chunks(paid, self.pipeline.stream(plan))
        try:
            return plan, await anext(chunks), chunks
        except BaseException:  # also when cancelled: closing charges and stops the work
            await chunks.aclose()
            raise


async def _paid_chunks(
    paid: PaidSpeech, chunks: AsyncGenerator[SpokenChunk, None]
) -> AsyncGenerator[SpokenChunk, None]:
    """The same chunks; closing it early charges for those that were taken."""
    async with paid, aclosing(chunks):
        async for chunk in chunks:
            await paid.hear(chunk)
            yield chunk
        await paid.done()
