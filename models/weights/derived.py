"""Writes files that engines make once of their weights, and deletes those of older versions."""

import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)


def write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all: several replicas may start at once. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)  # the cache may be shared
    os.replace(file.name, path)


def delete_outdated(paths: Iterable[Path]) -> None:
    """Those that are still there. A replica that has one open goes on reading it."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # of another user; it only takes room
            logger.warning("outdated_file_not_deleted", extra={"reason": str(error)})
            return
        logger.info("outdated_file_deleted", extra={"file": path.name})
