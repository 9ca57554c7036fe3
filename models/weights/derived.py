"""Files that are made once of published weights.

Conversions rewrite the graphs of an artefact for this service's runtimes. They are a step of
`make weights`; engines open what it made. A conversion has a version in the names of its files, so
that a cache may serve two releases at once.
"""

import logging
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What is made of an artefact. `convert(folder)` of the module gives contents by file name."""

    module: str  # slow to import
    version: int  # another number makes the files again
    files: tuple[str, ...]


CONVERSIONS = {
    "kokoro": Conversion(
        "models.weights.convert.kokoro",
        3,
        ("plan.onnx", *(f"part{number}.onnx" for number in range(9))),
    ),
    "perth": Conversion("models.weights.convert.perth", 1, ("encoder.onnx", "decoder.onnx")),
    "resemblyzer": Conversion("models.weights.convert.resemblyzer", 1, ("encoder.onnx",)),
}
"""By the name that `configs/catalogue.yaml` gives as an artefact's `conversion`."""


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
