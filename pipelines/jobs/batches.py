"""Batches: the lines of a file, each answered as a request of its own.

Every line holds and pays its own price, under a name that it keeps, so that one that is answered
again, because its process died before the answer was kept, is charged once.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from configs.schema.jobs import JobsConfig
from db.database import utc_now
from db.jobs.jobs import Job
from pipelines.billing.operation import Operation
from pipelines.jobs.jobs import Jobs

AnswerLine: TypeAlias = Callable[
    [str, bytes, int, Operation], Coroutine[Any, Any, tuple[bytes, bool]]
]
"""Of an endpoint, a line, its workspace and what pays: the line of the result, and whether it is
one of an answer. Raises failures of the service that may end."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """A file, and what is to be done with its lines; a file that has no batch has no endpoint."""

    size: int  # bytes of the file
    uploaded_at: datetime
    endpoint: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


TASK = TypeAdapter(BatchTask)
BLOCK_BYTES = 1 << 20


def count_lines(path: Path, most: int) -> int:
    """Those that are not blank, or one more than `most` of a file with more of any; blocking."""
    with path.open("rb") as file:  # in blocks: a file of line breaks would take seconds
        if sum(block.count(b"\n") for block in iter(partial(file.read, BLOCK_BYTES), b"")) > most:
            return most + 1
    return len(read_lines(path))


def read_lines(path: Path) -> list[bytes]:
    """Those that are not blank; blocking."""
    with path.open("rb") as file:
        return [line for line in file if line.strip()]


async def do_batch(
    jobs: Jobs, job: Job, task: BatchTask, path: Path, answer: AnswerLine, config: JobsConfig
) -> None:
    """Answers the lines of `path` from the first that is not kept yet, some at once.

    After its turn it gives the job back, if another waits. Raises LeaseLost, or as `answer`.
    """
    lines, began, done = await asyncio.to_thread(read_lines, path), time.monotonic(), job.units
    ends = job.created_at + timedelta(hours=config.batch_hours)
    while block := lines[done : done + config.batch_block]:
        if utc_now() >= ends:
            await jobs.expire(job)
            return
        if time.monotonic() - began > config.batch_turn_s and await jobs.count_free():
            await jobs.give_back(job)
            return
        payers = [
            Operation(job.key_id or None, f"{job.operation}-{number}")
            for number in range(done, done + len(block))
        ]
        try:
            async with asyncio.TaskGroup() as group:
                answering = [
                    group.create_task(answer(task.endpoint, line, job.workspace_id, payer))
                    for line, payer in zip(block, payers, strict=True)
                ]
        except ExceptionGroup as errors:  # the first says why the attempt ends
            raise errors.exceptions[0] from None
        made = [one.result() for one in answering]
        answers = [line for line, is_answer in made if is_answer]
        failures = [line for line, is_answer in made if not is_answer]
        await jobs.keep_lines(job, done, answers, failures)
        done += len(block)
    await jobs.complete(job)
