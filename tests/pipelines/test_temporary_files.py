"""Temporary files: read by several at once, without a name, deleted with their last reference."""

import os
import tempfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.temporary_files import IN_MEMORY_BYTES, TemporaryFile

CONTENT = os.urandom(3 * IN_MEMORY_BYTES + 1)


def test_readers_in_several_threads_each_get_all_of_it() -> None:
    file = TemporaryFile()
    for start in range(0, len(CONTENT), 70_000):
        file.write(CONTENT[start : start + 70_000])
    assert file.size == len(CONTENT)
    sizes = (997, 4096, 65_536, 1 << 20)
    with ThreadPoolExecutor(len(sizes)) as threads:
        read = threads.map(lambda size: b"".join(file.blocks(size)), sizes)
    assert all(content == CONTENT for content in read)
    file.close()


def test_what_is_written_leaves_memory_and_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tracemalloc.start()
    try:
        file = TemporaryFile()
        for _ in range(20):
            file.write(bytes(IN_MEMORY_BYTES))
        assert tracemalloc.get_traced_memory()[1] < 5 * IN_MEMORY_BYTES
    finally:
        tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []
    del file  # without a warning, which would fail this test


def test_an_empty_file_has_no_blocks() -> None:
    file = TemporaryFile()
    assert (file.size, list(file.blocks(10))) == (0, [])
    file.close()
