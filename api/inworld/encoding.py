"""Speech as Inworld's API sends it: a flush is one file, or stretches that stand alone."""

import struct
from typing import Literal

from models.audio import Pcm, float_to_pcm16
from pipelines.audio.encode.files import FileFormat, SpeechEncoder, open_stream
from pipelines.audio.encode.stream import ChunkEncoder, to_mulaw

InworldEncoding = Literal["LINEAR16", "PCM", "WAV", "MP3", "OGG_OPUS", "FLAC", "MULAW"]

_FILES: dict[InworldEncoding, FileFormat] = {"MP3": "mp3", "OGG_OPUS": "ogg", "FLAC": "flac"}
SLOW = frozenset(_FILES)
_UNKNOWN_BYTES = 0xFFFF_FFFF - 36  # of a stream


class InworldEncoder(ChunkEncoder):
    """Raw samples, or files that begin with the first chunk and end with a flush.

    LINEAR16 chunks have a header each, those of WAV only the first after a flush.
    """

    def __init__(self, encoding: InworldEncoding, sample_rate_hz: int) -> None:
        super().__init__(sample_rate_hz)
        self._encoding = encoding
        self._file: SpeechEncoder | None = None
        self._begun = False

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        data = self._raw(pcm) if self._encoding not in _FILES else self._filed(pcm, last=last)
        self._begun = (self._begun or bool(data)) and not last
        return [data] if data else []

    def _raw(self, pcm: Pcm) -> bytes:
        if not len(pcm):
            return b""
        if self._encoding == "MULAW":
            return to_mulaw(pcm)
        samples = float_to_pcm16(pcm)
        if self._encoding == "LINEAR16":
            return wav_header(self._sample_rate, len(samples)) + samples
        if self._encoding == "WAV" and not self._begun:
            return wav_header(self._sample_rate) + samples
        return samples

    def _filed(self, pcm: Pcm, *, last: bool) -> bytes:
        data = b""
        if len(pcm):
            if self._file is None:
                self._file = open_stream(_FILES[self._encoding], self._sample_rate)
            data = self._file.encode(pcm)
        if last and self._file is not None:
            data += self._file.finish()
            self._file = None
        return data


def joined(encoding: InworldEncoding, sample_rate_hz: int, parts: list[bytes]) -> bytes:
    """All chunks of a text as one file. `parts` are of PCM where that is LINEAR16 or WAV."""
    data = b"".join(parts)
    if encoding in ("LINEAR16", "WAV"):
        return wav_header(sample_rate_hz, len(data)) + data
    return data


def wav_header(sample_rate_hz: int, data_bytes: int = _UNKNOWN_BYTES) -> bytes:
    """The 44 bytes, no more, that clients cut off before mono int16 samples."""
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + data_bytes,
        b"WAVE",
        b"fmt ",
        16,
        1,  # samples, not compressed
        1,  # channel
        sample_rate_hz,
        2 * sample_rate_hz,
        2,
        16,
        b"data",
        data_bytes,
    )
