"""Temporary files without a name, for data that may be too large for memory."""

import os
from collections.abc import Iterator
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from threading import Lock

from pipelines.errors import StorageUnavailable

IN_MEMORY_BYTES = 2**20  # 11 s of speech, 2 minutes of MP3; more is on disk


class TemporaryFile(SpooledTemporaryFile[bytes]):
    """Bytes that are written, and read in blocks once they are complete. They are deleted by
    `close`, or with the last reference. Bytes that were just written are in the page cache, so that
    256 KiB take 0.1 ms, and the event loop may write and read them."""

    def __init__(self) -> None:
        super().__init__(IN_MEMORY_BYTES)
        self._reading = Lock()

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write bytes. Raises StorageUnavailable if the disk is full."""
        try:
            written = super().write(data)
            self.flush()  # otherwise a full disk would show only when the file is read
        except OSError as error:
            raise StorageUnavailable("there is no room for temporary files") from error
        return written

    @property
    def size(self) -> int:
        with self._reading:
            return self.seek(0, os.SEEK_END)

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the content in blocks of `size` bytes. Several threads may read at once."""
        start = 0
        while block := self._read(start, size):
            yield block
            start += len(block)

    def close(self) -> None:
        with suppress(OSError):  # a full disk may fail it again
            super().close()

    def __del__(self) -> None:
        self.close()  # without a warning: an answer that is not sent is not closed

    def _read(self, start: int, size: int) -> bytes:
        with self._reading:
            self.seek(start)
            return self.read(size)
