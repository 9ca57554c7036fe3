"""Paid transcription and verification of files: the charge and the webhook events around them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
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
from pipelines.stt.file import (
    DecodedRecording,
    FileTranscript,
    HeardText,
    TranscriptionPipeline,
)
from pipelines.webhooks.events import WebhookEvents, failure_event

T = TypeVar("T")

_FAILED: FailureEvent = partial(failure_event, "stt.failed")
LEAST_MS = 10_000  # of audio: the price that a file needs before it is decoded, or may fail for


@dataclass(frozen=True, slots=True)
class PaidTranscription:
    """Transcription and verification of files, with their charge and webhook events."""

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
        """As `TranscriptionPipeline.open`, as far as the credit pays for the audio.

        Sends `stt.failed` when the service fails. Raises InsufficientCredit too.
        """
        await self.check_credit(workspace_id, operation)
        channels = 1 + options.multichannel
        async with self.events.recording(workspace_id, "stt.failed"):
            options = await self.pipeline.resolve(options)  # which an unknown language fails, free
            async with self._decoding(workspace_id, operation, channels) as most_s:
                return await self.pipeline.open(
                    path, options, workspace_id, most_s / channels, known=known
                )

    async def check_credit(self, workspace_id: int, operation: Operation) -> None:
        """Before a file is decoded. Raises InsufficientCredit or DatabaseUnavailable."""
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
        """The answer that `to_answer` makes from the transcript of a file.

        Charges for the length of the decoded audio, since headers may be wrong. Raises as
        `TranscriptionPipeline.open` and `transcribe`, InsufficientCredit or DatabaseUnavailable.
        """
        recording = await self.open(workspace_id, operation, path, options, known=known)
        charging = self._charge(workspace_id, operation, recording.transcribed_s, _FAILED)
        async with await charging as charge:
            transcript = await self.pipeline.transcribe(recording)
            answer = to_answer(transcript)  # before the charge: its failure is not charged
            await charge.capture(
                _milliseconds(recording.transcribed_s), _completed(charge, transcript)
            )
        return answer

    async def stream(
        self,
        workspace_id: int,
        operation: Operation,
        recording: DecodedRecording,
    ) -> AsyncGenerator[HeardText | FileTranscript, None]:
        """As `TranscriptionPipeline.stream`; closing it early charges for the audio so far."""
        charging = self._charge(workspace_id, operation, recording.duration_s, _FAILED)
        async with await charging as charge:
            async with aclosing(self.pipeline.stream(recording)) as heard:
                async for item in heard:
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
        """What `watermarks` detects in a file, at the price of its transcription.

        Raises NotFound when watermarking is off, InsufficientCredit, DatabaseUnavailable, and as
        AudioDecoder.decode.
        """
        await self.check_credit(workspace_id, operation)
        watermarks.check_on()
        async with self._decoding(workspace_id, operation) as most_s:
            audio = await decoder.decode(path, owner=workspace_id, max_duration_s=most_s)
        async with await self._charge(workspace_id, operation, audio.duration_s) as charge:
            found = await watermarks.detect(audio, str(workspace_id))
            await charge.capture(charge.units)
        return found

    def _decoding(
        self, workspace_id: int, operation: Operation, channels: int = 1
    ) -> AbstractAsyncContextManager[float]:
        return self.billing.decoding(workspace_id, LEAST_MS, MAX_DURATION_S * channels, operation)

    async def _charge(
        self,
        workspace_id: int,
        operation: Operation,
        duration_s: float,
        failed: FailureEvent | None = None,
    ) -> Charge:
        # Without the credit it was decoded for nothing.
        async with self.billing.counted_failure(workspace_id, "stt", LEAST_MS, operation):
            charge = await self.billing.hold(
                workspace_id,
                "stt",
                _milliseconds(duration_s),
                operation,
                failed=failed,
            )
        # It is decoded, and worked on for some seconds.
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
