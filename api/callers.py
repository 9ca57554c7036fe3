"""Callers, who ask for speech and recognition on routes and sockets, and pay for it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from api.http.routing import OperationDep, PrincipalDep, SpeechDep
from api.http.streaming import while_connected
from api.services import SpeechServices
from models.stt.options import RecognitionOptions
from pipelines.accounts.authentication import Principal
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.billing.operation import Operation
from pipelines.stt.diarization import SpeakerVoice
from pipelines.stt.file import FileTranscript
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import SpeechStream
from pipelines.tts.voices import AvailableVoice, VoiceDirectory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request or socket, and the operation that pays."""

    principal: Principal
    operation: Operation
    speech: SpeechServices

    @property
    def workspace_id(self) -> int:
        return self.principal.workspace_id

    @property
    def directory(self) -> VoiceDirectory:
        return self.speech.synthesis.pipeline.directory

    def recording_failures(self, voice_id: str | None) -> AbstractAsyncContextManager[None]:
        """Records a failure to begin speech as the event `tts.failed`."""
        events = self.speech.synthesis.events
        return events.recording(self.workspace_id, "tts.failed", voice_id=voice_id)

    def open_stream(
        self,
        voice: AvailableVoice,
        style: SpeechRequest,
        make_encoder: Callable[[], AudioEncoder],
        *,
        slow_encoder: bool = False,
        whole: bool = False,
    ) -> SpeechStream:
        """Opens a stream of speech; with `whole`, it is sent only when complete."""
        return SpeechStream(
            synthesis=self.speech.synthesis,
            workspace_id=self.workspace_id,
            voice=voice,
            style=style,
            make_encoder=make_encoder,
            slow_encoder=slow_encoder,
            is_whole=whole,
            operation=self.operation,
        )

    async def check_credit(self) -> None:
        """Checks the credit for a recording. Raises InsufficientCredit or DatabaseUnavailable."""
        await self.speech.transcription.check_credit(self.workspace_id, self.operation)

    async def transcribe(
        self,
        request: Request,
        path: Path,
        options: RecognitionOptions,
        to_answer: Callable[[FileTranscript], T],
        known: tuple[SpeakerVoice, ...] = (),
    ) -> T:
        """Transcribes a recording unless the client disconnects. Raises ClientDisconnect or
        the errors of `PaidTranscription.transcribe`."""
        work = self.speech.transcription.transcribe(
            self.workspace_id, self.operation, path, options, to_answer, known=known
        )
        return await while_connected(request.receive, work)


async def _caller_of(principal: PrincipalDep, operation: OperationDep, speech: SpeechDep) -> Caller:
    return Caller(principal, operation, speech)


CallerDep = Annotated[Caller, Depends(_caller_of)]
