"""Downloads of recordings before their jobs are queued, so that a slow server delays no job."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from configs.schema.jobs import JobsConfig
from db.database import utc_now
from db.errors import DatabaseUnavailable
from db.jobs import jobs
from db.jobs.jobs import Job
from db.jobs.queue import claim_fetch
from pipelines.errors import MAY_PASS, SERVICE_FAULTS, may_pass, public_error
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.queue import LeaseLost
from pipelines.jobs.transcription import TASK
from pipelines.tasks import TaskSet, retry
from pipelines.temporary_directories import RECORDINGS, temporary_directory_in_thread
from pipelines.webhooks.sender import FetchFailed, Sender

logger = logging.getLogger(__name__)

LOOK_S = 2.0  # polling interval
RETRY_S = 120.0  # a URL that fails is retried for this long


class Fetches(Jobs):
    """Queue of jobs whose recordings have to be fetched before they are queued for their work."""

    renew_s = 5.0

    async def claim(self) -> Job | None:
        """Claims the next recording to fetch, under a new lease; None if none is waiting."""
        return await self._database.run(claim_fetch, secrets.token_hex(16), utc_now(), self._work)

    async def drop_parts(self, claimed: Job) -> None:
        """Deletes the parts of an incomplete attempt."""
        await self._change(claimed, lambda session, row: jobs.drop_files(session, row.id, "part"))


@dataclass(eq=False, repr=False)
class Fetcher:
    """Fetches several recordings at a time, a few of each workspace, in parts. While others wait, a
    fetch whose turn is over gives up its place and starts again later, with a turn as long as the
    time since its first attempt: workspaces with slow servers cannot keep the rest out, and large
    recordings are complete in the end."""

    _jobs: Fetches
    _sender: Sender
    _config: JobsConfig
    _tasks: TaskSet = field(default_factory=TaskSet)
    _turns: dict[asyncio.Task[None], float] = field(default_factory=dict)
    """Ends of the turns of running fetches, in seconds of time.monotonic()."""

    async def run(self) -> None:
        """Fetches until it is cancelled; other workers then start its fetches again."""
        try:
            while True:
                try:
                    await self._start_waiting()
                except DatabaseUnavailable as error:
                    logger.warning("fetches_unavailable", extra={"reason": str(error)})
                await asyncio.sleep(LOOK_S)
        finally:
            await self._tasks.close()

    async def _start_waiting(self) -> None:
        while True:
            is_free = len(self._turns) < self._config.fetches_at_once
            if not is_free and min(self._turns.values()) > time.monotonic():
                return  # no turn is over
            if (claimed := await self._jobs.claim()) is None:
                return
            if not is_free and self._turns:
                longest = min(self._turns, key=lambda task: self._turns[task])
                del self._turns[longest]
                longest.cancel()
            assert claimed.tried_since, "a claimed job has been tried"
            tried_s = (utc_now() - claimed.tried_since).total_seconds()
            fetch = self._tasks.start(self.fetch(claimed))
            self._turns[fetch] = time.monotonic() + max(self._config.turn_s, tried_s)
            fetch.add_done_callback(lambda task: self._turns.pop(task, None))

    async def fetch(self, claimed: Job) -> None:
        """Fetches a recording, and queues or fails its job, or leaves it to another attempt."""
        try:
            await self._jobs.under_lease(claimed, self._fetch(claimed))
        except asyncio.CancelledError:
            await asyncio.shield(self._jobs.give_back(claimed, pause_s=0.0))
            raise
        except Exception as error:  # any layer may raise; LeaseLost changes nothing more
            logger.warning("recording_not_fetched", extra={"job": str(claimed.id)}, exc_info=error)
            died = not may_pass(error)
            with suppress(*MAY_PASS):  # the lease expires by itself then
                if public_error(error)[0] in SERVICE_FAULTS:
                    await self._jobs.give_back(claimed, died=died, pause_s=self._config.lease_s)
                else:
                    await self._jobs.fail(claimed, error)

    async def _fetch(self, claimed: Job) -> None:
        if not (options := await self._jobs.files(claimed, "options")):
            raise LeaseLost
        task = TASK.validate_json(await self._jobs.read(claimed, options[0]))
        async with temporary_directory_in_thread(RECORDINGS) as folder:
            most_bytes = self._config.most_parts * (self._config.part_mb << 20)
            open_recording = partial(self._sender.fetch, task.url, most_bytes)
            if task.upload:
                open_recording = partial(self._jobs.pieces, claimed, task.upload)
            call = partial(self._store, claimed, open_recording, folder / "part")
            await retry(call, FetchFailed, within_s=RETRY_S)
        await self._jobs.queue(claimed, "processing")

    async def _store(
        self, claimed: Job, open_recording: Callable[[], AsyncGenerator[bytes, None]], path: Path
    ) -> None:
        """Stores a recording in parts. Raises InvalidUrl, FileTooLarge or NotFound."""
        number = 1
        most = self._config.part_mb << 20
        await self._jobs.drop_parts(claimed)
        with path.open("wb") as part:
            async for piece in open_recording():
                if part.tell() + len(piece) > most:
                    await self._jobs.keep(claimed, "part", number, path)
                    number += 1
                    part.seek(0)
                    part.truncate()
                await asyncio.to_thread(part.write, piece)
                part.flush()
        await self._jobs.keep(claimed, "part", number, path)
