"""Paid transcription and verification of files, with charge and webhook events."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from db.webhooks import NewEvent
from models.stt.options import RecognitionOptions
from pipelines.audio.decode.decoder import MAX_DURATION_S, AudioDecoder
from pipelines.audio.watermarking import WatermarkDetection, Watermarker
from pipelines.billing.billing import Billing, Charge, FailureEvent
from pipelines.billing.operation import Operation
from pipelines.stt.diarization import SpeakerVoice
from pipelines.stt.file import DecodedRecording, FileTranscript, HeardText, TranscriptionPipeline
from pipelines.webhooks.events import WebhookEvents, failure_event

T = TypeVar("T")

_FAILED: FailureEvent = partial(failure_event, "stt.failed")
LEAST_MS = 10_000  # audio whose price an account must afford before a file is decoded


@dataclass(frozen=True, slots=True)
class PaidTranscription:
    pipeline: TranscriptionPipeline
    billing: Billing
    events: WebhookEvents

    async def open(
        self,
        workspace_id: int,
        operation: Operation,
        path: Path,
        options: RecognitionOptions,
        known: tuple[SpeakerVoice, ...] = (),
    ) -> DecodedRecording:
        """Opens a file as `TranscriptionPipeline.open` does, as far as the credit pays for the
        audio. Sends `stt.failed` when the service fails. Also raises InsufficientCredit."""
        await self.check_credit(workspace_id, operation)
        channels = 1 + options.multichannel
        async with self.events.recording(workspace_id, "stt.failed"):
            # An unknown language fails here, free of charge.
            options = await self.pipeline.resolve(options)
            longest_s = MAX_DURATION_S * channels
            decoding = self.billing.decoding(workspace_id, LEAST_MS, longest_s, operation)
            async with decoding as most_s:
                return await self.pipeline.open(
                    path, options, workspace_id, most_s / channels, known=known
                )

    async def check_credit(self, workspace_id: int, operation: Operation) -> None:
        """Checks the credit for a file. Raises InsufficientCredit or DatabaseUnavailable."""
        await self.billing.check_credit(workspace_id, "stt", LEAST_MS, operation)

    async def transcribe(
        self,
        workspace_id: int,
        operation: Operation,
        path: Path,
        options: RecognitionOptions,
        to_answer: Callable[[FileTranscript], T],
        known: tuple[SpeakerVoice, ...] = (),
    ) -> T:
        """Transcribes a file; returns the answer that `to_answer` makes of the transcript, in a
        thread. Charges for the length of the decoded audio, since headers may be wrong. Raises as
        `TranscriptionPipeline.open` and `transcribe`, InsufficientCredit or DatabaseUnavailable."""
        recording = await self.open(workspace_id, operation, path, options, known=known)
        charging = self._charge(workspace_id, operation, recording.transcribed_s, _FAILED)
        async with await charging as charge:
            transcript = await self.pipeline.transcribe(recording)
            # A failure of the answer is not charged.
            answer = await asyncio.to_thread(to_answer, transcript)
            await charge.capture(
                _milliseconds(recording.transcribed_s), _completed(charge, transcript)
            )
        return answer

    async def stream(
        self, workspace_id: int, operation: Operation, recording: DecodedRecording
    ) -> AsyncGenerator[HeardText | FileTranscript, None]:
        """Streams as `TranscriptionPipeline.stream`; an early end charges for the audio so far."""
        charging = self._charge(workspace_id, operation, recording.duration_s, _FAILED)
        async with await charging as charge:
            async with aclosing(self.pipeline.stream(recording)) as items:
                async for item in items:
                    if isinstance(item, HeardText):
                        charge.progress(_milliseconds(item.end_s))
                    else:
                        await charge.capture_delivered(charge.units, _completed(charge, item))
                    yield item

    async def verify(
        self,
        workspace_id: int,
        operation: Operation,
        path: Path,
        decoder: AudioDecoder,
        watermarks: Watermarker,
    ) -> WatermarkDetection:
        """Detects the watermark in a file, at the price of its transcription. Raises NotFound when
        watermarking is off, InsufficientCredit, DatabaseUnavailable, and as AudioDecoder.decode."""
        await self.check_credit(workspace_id, operation)
        watermarks.check_on()
        decoding = self.billing.decoding(workspace_id, LEAST_MS, MAX_DURATION_S, operation)
        async with decoding as most_s:
            audio = await decoder.decode(path, owner=workspace_id, max_duration_s=most_s)
        async with await self._charge(workspace_id, operation, audio.duration_s) as charge:
            detection = await watermarks.detect(audio, str(workspace_id))
            await charge.capture(charge.units)
        return detection

    async def _charge(
        self,
        workspace_id: int,
        operation: Operation,
        duration_s: float,
        failed: FailureEvent | None = None,
    ) -> Charge:
        # Without credit the file was decoded in vain.
        async with self.billing.counted_failure(workspace_id, LEAST_MS, operation):
            charge = await self.billing.hold(
                workspace_id, "stt", _milliseconds(duration_s), operation, failed=failed
            )
        # The file is decoded, and recognition takes seconds: it counts as begun.
        charge.progress(charge.units, is_sent=False)
        return charge


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _completed(charge: Charge, transcript: FileTranscript) -> NewEvent:
    data = {
        "id": charge.operation,
        "text": transcript.text,
        "language": transcript.language,
        "duration": round(transcript.duration_s, 3),
    }
    return NewEvent("stt.completed", data)
