"""Sample rate conversion of a stream, by soxr."""

import numpy as np
import soxr

from models.audio import Pcm


class StreamResampler:
    """Consecutive pcm at one rate to another; passes it through where both are the same.

    `quality` is soxr's: HQ for sound that people hear.
    """

    def __init__(self, from_hz: int, to_hz: int, quality: str = "HQ") -> None:
        self.from_hz = from_hz
        self._stream: soxr.ResampleStream | None = None
        if from_hz != to_hz:
            self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality=quality)

    def process(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """float32 [n] to what is ready of it; with `last` also what was held back."""
        if self._stream is None:
            return pcm
        return np.asarray(self._stream.resample_chunk(pcm, last=last), dtype=np.float32)

    def flush(self) -> Pcm:
        """The samples held back; the stream has ended."""
        return self.process(np.zeros(0, dtype=np.float32), last=True)
