"""Runs one attempt at a job, in the process with its lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from configs.schema.jobs import JobsConfig
from db.jobs.jobs import BATCH, Job
from models.stt.options import SpeakerChoice
from pipelines.errors import SERVICE_FAULTS, public_error
from pipelines.jobs import batches, speech, transcription
from pipelines.jobs.leases import until_available
from pipelines.jobs.queue import JobQueue, LeaseLost
from pipelines.stt.diarization import SpeakerVoice
from pipelines.stt.file import TranscriptionPipeline
from pipelines.temporary_directories import RECORDINGS, temporary_directory_in_thread
from pipelines.tts.paid import PaidSynthesis

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobRunner:
    """Runner of jobs with the models of a process."""

    jobs: JobQueue
    config: JobsConfig
    stt: TranscriptionPipeline
    synthesis: PaidSynthesis
    known_speakers: Callable[[int, SpeakerChoice], Awaitable[tuple[SpeakerVoice, ...]]]
    answer_line: batches.AnswerLine
    answer_callback: transcription.AnswerCallback

    async def run(self, claimed: Job) -> None:
        """Works on a job until it ends, gives way or loses its lease; after a failure of the
        service, which is raised, another attempt can follow."""
        await self.jobs.under_lease(claimed, self._work(claimed))

    async def _work(self, claimed: Job) -> None:
        try:
            async with temporary_directory_in_thread(RECORDINGS) as folder:
                options = await until_available(partial(self.jobs.files, claimed, "options"))
                if not options:
                    raise LeaseLost
                task = await until_available(partial(self.jobs.read, claimed, options[0]))
                if claimed.kind == "speech":
                    book = speech.TASK.validate_json(task)
                    await speech.speak(self.jobs, claimed, book, folder / "book", self.synthesis)
                elif claimed.kind == BATCH:
                    await until_available(partial(self._save, claimed, folder / "lines"))
                    batch = batches.TASK.validate_json(task)
                    await batches.do_batch(
                        self.jobs, claimed, batch, folder / "lines", self.answer_line, self.config
                    )
                else:
                    await self._transcribe(claimed, transcription.TASK.validate_json(task), folder)
        except LeaseLost:
            logger.info("job_deleted", extra={"job": str(claimed.id)})
        except Exception as error:  # any layer may raise; failures of the service are raised again
            if public_error(error)[0] in SERVICE_FAULTS:
                raise
            await self.jobs.fail(claimed, error)

    async def _transcribe(
        self, claimed: Job, task: transcription.TranscriptionTask, folder: Path
    ) -> None:
        if task.url and not await self.jobs.files(claimed, "part"):
            return await self.jobs.queue(claimed, "fetching")  # queued by an earlier release
        speakers = await self.known_speakers(claimed.workspace_id, task.known_speakers)
        path = folder / "recording"
        await until_available(partial(self._save, claimed, path))
        await transcription.transcribe(
            self.jobs, claimed, task, path, self.stt, speakers, self.answer_callback
        )

    async def _save(self, claimed: Job, path: Path) -> None:
        with path.open("wb") as file:
            async for piece in self.jobs.joined(claimed, "part"):
                await asyncio.to_thread(file.write, piece)
