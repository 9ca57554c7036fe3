"""Tries the store of files out before a client needs it, so that a wrong setting shows at once."""

import asyncio
import logging

from pipelines.errors import StorageUnavailable
from pipelines.storage.files import Files

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
AGAIN_S = 30.0


async def watch_storage(
    files: Files, *, timeout_s: float = TIMEOUT_S, again_s: float = AGAIN_S
) -> None:
    """For ever: at the start, and then while `files.degraded`, which is so after a failure."""
    while True:
        if problem := await storage_problem(files, timeout_s):
            logger.error("file_store_unusable", extra={"problem": problem})
        else:
            logger.info("file_store_works")
        await asyncio.sleep(again_s)
        while not files.degraded:
            await asyncio.sleep(again_s)


async def storage_problem(files: Files, timeout_s: float = TIMEOUT_S) -> str:
    """What is wrong with the store, for the operator; empty when nothing is.

    Returns when the store has answered: one that hangs is told of at once, and asked no second
    time meanwhile, since each question keeps a thread.
    """
    trying = asyncio.create_task(files.try_out())
    await asyncio.wait([trying], timeout=timeout_s)
    if not trying.done():
        files.degraded = True
        logger.error("file_store_unusable", extra={"problem": f"no answer within {timeout_s:g} s"})
    try:
        await trying
    except StorageUnavailable as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"
    return ""
