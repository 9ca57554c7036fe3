"""Batches: the lines of a file, each answered as a separate request. Each line holds and pays its
own price, under a fixed name: a line that is answered again, because its process died before the
answer was stored, is charged once."""

import asyncio
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Coroutine, Iterator
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
from pipelines.jobs.leases import PATIENCE_S
from pipelines.jobs.queue import JobQueue
from pipelines.tasks import retry

AnswerLine: TypeAlias = Callable[
    [str, bytes, int, Operation], Coroutine[Any, Any, tuple[bytes, bool]]
]
"""Answers a line, given as (endpoint, line, workspace id, payer). Returns the result line, and
False for an error. Raises failures of the service that may pass."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """Uploaded file, and how to answer its lines; `endpoint` is "" before it has a batch."""

    size: int  # bytes of the file
    uploaded_at: datetime
    endpoint: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


TASK = TypeAdapter(BatchTask)
BLOCK_BYTES = 1 << 20
LONGEST_PAUSE_S = 60.0  # between attempts at a line: each may write to the ledger


def count_lines(path: Path, most: int) -> int:
    """Counts non-blank lines; returns `most` + 1 if there are more lines of any kind. Blocking."""
    with path.open("rb") as file:  # read in blocks: a file of line breaks would take seconds
        if sum(block.count(b"\n") for block in iter(partial(file.read, BLOCK_BYTES), b"")) > most:
            return most + 1
    return sum(1 for _ in numbered_lines(path))


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields number and text of each non-blank line, without a byte order mark; blocking."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if text.strip():
                yield number, text


async def do_batch(
    jobs: JobQueue, job: Job, task: BatchTask, path: Path, answer: AnswerLine, config: JobsConfig
) -> None:
    """Answers the lines of `path` in blocks, from the first without a stored result. Answered lines
    are stored even if the batch is cancelled meanwhile, or another line fails. Raises LeaseLost, or
    as `answer` for a line that failed for PATIENCE_S."""
    lines = await asyncio.to_thread(lambda: [line for _, line in numbered_lines(path)])
    began = time.monotonic()
    done = job.units
    ends = job.created_at + timedelta(hours=config.batch_hours)

    async def answered(number: int, line: bytes) -> tuple[bytes, bool]:
        def tried() -> Coroutine[Any, Any, tuple[bytes, bool]]:
            payer = jobs.payer(job, f"{job.operation}-{number}")
            return answer(task.endpoint, line, job.workspace_id, payer)

        return await retry(tried, Exception, within_s=PATIENCE_S, longest_pause_s=LONGEST_PAUSE_S)

    while block := lines[done : done + config.batch_block]:
        if await jobs.is_cancelled(job):
            return await jobs.end_batch(job, "cancelled")
        if utc_now() >= ends:
            return await jobs.end_batch(job, "expired")
        answering = [answered(number, line) for number, line in enumerate(block, done)]
        results = await asyncio.gather(*answering, return_exceptions=True)
        answers, failures = list[bytes](), list[bytes]()
        for result in results:
            if isinstance(result, BaseException):
                break
            line, is_answer = result
            (answers if is_answer else failures).append(line)
        if answers or failures:
            await jobs.keep_lines(job, done, answers, failures)
            done += len(answers) + len(failures)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if done < len(lines) and await jobs.give_way(job, began):
            return
    await jobs.complete(job)
