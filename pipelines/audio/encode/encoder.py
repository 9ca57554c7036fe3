"""Encoders of speech: raw samples, and files that are written whole or piece by piece.

Files carry provenance tags that say that the speech is synthetic: ID3 in MP3, Vorbis comments in
Ogg and FLAC, RIFF INFO in WAV, which has a comment only. Bare samples have no tags."""

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import av
import numpy as np

from configs.settings import BRAND
from models.audio import AudioChunk, Pcm, StreamResampler, find_samples, float_to_pcm16
from pipelines.audio.id3 import id3_length
from pipelines.temporary_files import TemporaryFile

OutputFormat = Literal["mp3", "wav", "ogg", "flac"]
FileFormat = OutputFormat | Literal["aac", "wav_mulaw", "wav_alaw", "wav_float"]

_STREAM_OPTIONS: Mapping[FileFormat, dict[str, str]] = {
    "mp3": {"write_xing": "0"},  # the length of a stream is not known
    "flac": {"metadata_header_padding": "0"},  # 8 kB that only an editor of tags wants
    "ogg": {"page_duration": "40000"},  # microseconds; by default a page waits for a second
}
_TAG_OPTIONS: Mapping[FileFormat, dict[str, str]] = {"aac": {"write_id3v2": "1"}}
_FLUSH_PACKETS = 0x200  # each packet is written at once
_MP3_DELAY = 576  # delay of LAME in samples, in addition to that of every decoder
_UNKNOWN_BYTES = 0xFFFF_FFFF - 36  # the length in the header of a stream

TAGS: Mapping[str, str] = {
    "comment": f"Synthetic speech, made by {BRAND}",
    "synthetic": "true",
    # IPTC's term for media created by a trained model; other programs know it.
    "digital_source_type": (
        "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
    ),
}

_MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_OPUS_RATES = (8000, 12000, 16000, 24000, 48000)


@dataclass(frozen=True, slots=True)
class Codec:
    encoding: str  # name in responses
    codec: str  # PyAV's name
    sample_format: str
    media_type: str
    rates: tuple[int, ...]  # Hz that the codec takes; empty: all rates
    decoded_rate: int | None = None  # rate in Hz that a decoder delivers; None: as encoded
    bit_rate: int | None = None
    container: str | None = None  # name that PyAV uses; None: the format's name


CODECS: Mapping[FileFormat, Codec] = {
    "mp3": Codec("MP3", "libmp3lame", "fltp", "audio/mpeg", _MPEG_RATES, bit_rate=64_000),
    "wav": Codec("LINEAR16", "pcm_s16le", "s16", "audio/wav", ()),
    "ogg": Codec(
        "OGG_OPUS", "libopus", "flt", "audio/ogg", _OPUS_RATES, decoded_rate=48_000, bit_rate=48_000
    ),
    "flac": Codec("FLAC", "flac", "s16", "audio/flac", ()),
    "aac": Codec("AAC", "aac", "fltp", "audio/aac", _MPEG_RATES, bit_rate=64_000, container="adts"),
    "wav_mulaw": Codec("MULAW", "pcm_mulaw", "s16", "audio/wav", (), container="wav"),
    "wav_alaw": Codec("ALAW", "pcm_alaw", "s16", "audio/wav", (), container="wav"),
    "wav_float": Codec("FLOAT32", "pcm_f32le", "flt", "audio/wav", (), container="wav"),
}


@dataclass(frozen=True, slots=True)
class EncodedAudio:
    file: TemporaryFile
    encoding: str
    output_format: OutputFormat
    sample_rate: int  # Hz that a decoder gives
    duration_s: float  # length of the decoded audio

    @property
    def data(self) -> bytes:
        """Read the whole file into memory."""
        return b"".join(self.file.blocks(2**20))


class AudioEncoder(ABC):
    """Turns consecutive chunks, of any sample rates, into consecutive messages of one rate.
    Blocking, for one thread at a time."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate  # Hz that a decoder gives
        self._rate = sample_rate  # Hz of the samples that are encoded
        self.goes_on = False  # whether a stream of MP3 has begun, which the next file continues
        self._resampler: StreamResampler | None = None

    def encode(self, chunk: AudioChunk) -> list[bytes]:
        """Encode a chunk; return the messages that are ready, perhaps none."""
        pcm: list[Pcm] = []
        if self._resampler is not None and chunk.sample_rate != self._resampler.from_hz:
            pcm.append(self._resampler.flush())  # another voice begins where this one ended
            self._resampler = None
        self._resampler = self._resampler or StreamResampler(chunk.sample_rate, self._rate)
        pcm.append(self._resampler.process(chunk.pcm))
        return self._write(np.concatenate(pcm), last=False)

    def flush(self) -> list[bytes]:
        """Return the messages that are still held back; the encoder may continue afterwards."""
        if self._resampler is None:
            return []
        rest = self._resampler.flush()
        self._resampler = None
        return self._write(rest, last=True)

    @abstractmethod
    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        """Write `pcm`, float32 [n] at the encoder's rate; with `last`, everything held back."""


class SampleEncoder(AudioEncoder):
    """Bare samples as `convert` writes them, by default little-endian int16; these may have a WAV
    header on each message, or on the first of a flush."""

    def __init__(
        self,
        sample_rate: int,
        convert: Callable[[Pcm], bytes] = float_to_pcm16,
        *,
        wav_header_on: Literal["none", "first", "each"] = "none",
    ) -> None:
        super().__init__(sample_rate)
        self._convert = convert
        self._header_on = wav_header_on
        self._begun = False

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        data = self._convert(pcm)
        if data and self._header_on == "each":
            data = wav_header(self._rate, len(data)) + data
        elif data and self._header_on == "first" and not self._begun:
            data = wav_header(self._rate) + data
        self._begun = (self._begun or bool(data)) and not last
        return [data] if data else []


def wav_header(sample_rate: int, data_bytes: int = _UNKNOWN_BYTES) -> bytes:
    """Makes the 44 bytes before mono int16 samples; some clients rely on their number."""
    samples = struct.pack("<HHIIHH", 1, 1, sample_rate, 2 * sample_rate, 2, 16)  # plain, mono
    parts = b"RIFF", 36 + data_bytes, b"WAVEfmt ", len(samples), samples, b"data", data_bytes
    return struct.pack("<4sI8sI16s4sI", *parts)


def write_wav_length(file: TemporaryFile) -> None:
    """Write the length of a WAV file into the header that a stream's encoder left open, if any."""
    size = file.size
    file.seek(0)
    if (header := find_samples(file.read(4096))) is None:
        return
    _, samples_at, _ = header
    for place in (4, samples_at - 4):
        file.seek(place)
        file.write((size - place - 4).to_bytes(4, "little"))


class FileEncoder(AudioEncoder):
    """Writes a file in a container, piece by piece. After a flush another file begins; but MP3 goes
    on as one stream, in which decoders refuse another tag."""

    def __init__(
        self,
        output_format: FileFormat,
        sample_rate: int,
        target: TemporaryFile | None = None,
        bit_rate: int | None = None,
    ) -> None:
        """Create an encoder. Only a file in a `target` has its true length in the header, not a
        stream. `bit_rate` replaces the codec's usual bit rate."""
        self._codec = replace(codec := CODECS[output_format], bit_rate=bit_rate or codec.bit_rate)
        super().__init__(_nearest_rate(self._codec, sample_rate))
        self.sample_rate = self._codec.decoded_rate or self._rate
        self._format = output_format
        self._target = target
        self._container: av.container.OutputContainer | None = None
        self._samples = 0

    @property
    def duration_s(self) -> float:
        """Duration of the file so far; decoders drop the padding of all codecs but AAC."""
        return self._samples / self._rate

    def _write(self, pcm: Pcm, *, last: bool) -> list[bytes]:
        if len(pcm):
            if self._container is None:
                self._container = self._open()
            frame = self._frame(pcm)
            frame.pts = self._samples
            self._samples += len(pcm)
            self._container.mux(self._stream.encode(frame))
        elif self._container is None:
            return []
        if last:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._container = None
        data = self._take()
        return [data] if data else []

    def _open(self) -> av.container.OutputContainer:
        self._samples = 0
        self._sink = _Sink()
        is_stream = self._target is None
        options = dict(_TAG_OPTIONS.get(self._format, {}))
        if is_stream:
            options |= _STREAM_OPTIONS.get(self._format, {})
        if self.goes_on:
            options["id3v2_version"] = "0"  # no tag
        container = av.open(
            self._target or self._sink,
            "w",
            format=self._codec.container or self._format,
            options=options,
        )
        container.metadata.update(TAGS)
        if is_stream:
            container.flags |= _FLUSH_PACKETS
        # PyAV's types do not express that a codec of this name gives an audio stream.
        self._stream: Any = cast(Any, container).add_stream(self._codec.codec, rate=self._rate)
        self._stream.layout = "mono"
        self._stream.format = self._codec.sample_format
        if self._codec.bit_rate:
            self._stream.bit_rate = self._codec.bit_rate
        return container

    def _take(self) -> bytes:
        data = self._sink.take()
        is_stream = self._format == "mp3" and self._target is None
        if not (data and is_stream) or self.goes_on:
            return data
        self.goes_on = True
        tag = id3_length(data)
        opening = _mp3_opening(data[tag:], self._rate, self._codec.bit_rate or 0)
        return data[:tag] + opening + data[tag:]

    def _frame(self, pcm: Pcm) -> Any:
        samples: np.ndarray = pcm
        if self._codec.sample_format == "s16":
            samples = (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype(np.int16)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples[np.newaxis]), self._codec.sample_format, "mono"
        )
        frame.sample_rate = self._rate
        return frame


class FileWriter:
    """Collects chunks into one whole file, not in memory; blocking."""

    def __init__(self, output_format: OutputFormat, sample_rate: int | None = None) -> None:
        """Create a writer of audio at about `sample_rate` (Hz), or that of the first chunk."""
        self._format = output_format
        self._sample_rate = sample_rate
        self._target = TemporaryFile()
        self._encoder: FileEncoder | None = None
        self._rate = 0  # Hz of the last chunk

    def add(self, audio: AudioChunk) -> None:
        """Add a chunk. Raises StorageUnavailable if the disk is full."""
        if self._encoder is None:
            sample_rate = self._sample_rate or audio.sample_rate
            self._encoder = FileEncoder(self._format, sample_rate, self._target)
        self._encoder.encode(audio)
        self._rate = audio.sample_rate

    def add_silence(self, seconds: float) -> None:
        """Add silence, after at least some audio was added. Raises as `add`."""
        self.add(AudioChunk(np.zeros(round(seconds * self._rate), np.float32), self._rate))

    def finish(self) -> EncodedAudio:
        """Return the file, after at least some audio was added. Raises as `add`."""
        assert self._encoder is not None, "a file without audio"
        self._encoder.flush()
        return EncodedAudio(
            file=self._target,
            encoding=CODECS[self._format].encoding,
            output_format=self._format,
            sample_rate=self._encoder.sample_rate,
            duration_s=self._encoder.duration_s,
        )


def encode(audio: AudioChunk, output_format: OutputFormat) -> EncodedAudio:
    """Encode `audio` as a whole file; blocking."""
    writer = FileWriter(output_format)
    writer.add(audio)
    return writer.finish()


def _nearest_rate(codec: Codec, sample_rate: int) -> int:
    """Return the lowest rate of the codec that keeps all of the audio."""
    if not codec.rates:
        return sample_rate
    return min((rate for rate in codec.rates if rate >= sample_rate), default=max(codec.rates))


def _mp3_opening(first: bytes, sample_rate: int, bit_rate: int) -> bytes:
    """Make a silent frame whose tag has the number of samples that a decoder drops at the
    beginning.

    Without it, players play the codec's delay as silence. The container library writes such a frame
    last, into a file; a stream has to begin with it. `first` begins with the header of a frame."""
    older = sample_rate < 32_000  # MPEG-2 and 2.5
    most = 64_000 if sample_rate < 16_000 else 160_000 if older else 320_000  # bit/s of LAME
    length = (72 if older else 144) * min(bit_rate, most) // sample_rate
    # This header has no padding byte and no flag but mono: FFmpeg takes any other frame for audio.
    header = bytes([first[0], first[1], first[2] & ~0x02, first[3] & 0xC0])
    side = bytes(9 if older else 17)
    # The tag has no optional fields, since the length is not known; its writer's name follows.
    tag = b"Xing" + bytes(4) + b"Lavf".ljust(21, b"\0") + (_MP3_DELAY << 12).to_bytes(3, "big")
    return (header + side + tag).ljust(length, b"\0")


class _Sink(io.BytesIO):
    """Target of a stream's container, without seeking, so that no header is rewritten."""

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data


def vorbis_comments() -> bytes:
    """Serialises a list of comments with its count, as in Opus and FLAC."""
    comments = [f"{name}={value}".encode() for name, value in TAGS.items()]
    parts = [len(comment).to_bytes(4, "little") + comment for comment in comments]
    return len(parts).to_bytes(4, "little") + b"".join(parts)
