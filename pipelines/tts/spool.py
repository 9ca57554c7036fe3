"""The speech of a whole file, whose loudness is measured over all of it before it is encoded."""

import time
from collections.abc import Callable, Generator, Iterator

import numpy as np

from models.audio import AudioChunk, Pcm
from models.watermark.base import Watermark
from pipelines.audio.effects import HighPass, enhance
from pipelines.temporary_files import TemporaryFile

BLOCK_S = 2.0  # audio a block: the limiter takes 1.5 times as long on audio that no cache holds
STEP_S = 0.02  # work in one turn; then other files have their turns in the same threads


class SpeechSpool:
    """Takes speech while it is synthesised; then enhances, watermarks and writes it in blocks.
    Blocking, for one thread at a time. 15 minutes of speech take 86 MB on disk."""

    def __init__(self, *, is_enhanced: bool, watermark: Watermark | None) -> None:
        self.sample_rate = 0  # Hz, known with the first audio
        self._is_enhanced = is_enhanced
        self._watermark = watermark
        self._file = TemporaryFile()

    def add(self, audio: AudioChunk) -> None:
        """Add audio, which takes 0.3 ms a second. Raises StorageUnavailable if the disk is full."""
        if not self.sample_rate:
            self.sample_rate = audio.sample_rate
            self._high_pass = HighPass(audio.sample_rate)
        pcm = self._high_pass.process(audio.pcm) if self._is_enhanced else audio.pcm
        self._file.write(pcm.tobytes())

    def write_all(self, write: Callable[[AudioChunk], object]) -> Generator[None, None, None]:
        """Call `write` with all of the speech; yield after each 20 ms of work."""
        rate = self.sample_rate
        until_s = time.monotonic() + STEP_S
        marking = None if self._watermark is None else self._watermark.stream(rate)
        for block in enhance(self._blocks, rate) if self._is_enhanced else self._blocks():
            if len(block):
                write(AudioChunk(block if marking is None else marking.process(block), rate))
            if time.monotonic() > until_s:
                yield
                until_s = time.monotonic() + STEP_S
        if marking is not None:
            write(AudioChunk(marking.flush(), rate))

    def close(self) -> None:
        self._file.close()

    def _blocks(self) -> Iterator[Pcm]:
        for data in self._file.blocks(round(BLOCK_S * self.sample_rate) * 4):
            yield np.frombuffer(data, dtype=np.float32)
