"""The process that decodes uploads by FFmpeg (PyAV), under limits of memory and CPU time.

`python -m pipelines.audio.decode.worker` reads one JSON job a line and answers one JSON line each:
`{"source", "format", "target", "sample_rate", "max_seconds"}` gives `{"duration_s"}` and
mono float32 samples in the file `target`, or `{"error", "message"}`. It imports little.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would reserve address space

import av
import numpy as np
from numpy.typing import NDArray

from models.audio import StreamResampler
from pipelines.errors import AudioTooLong, FileTooLarge, InvalidAudio, PipelineError

MAX_MEMORY_BYTES = 1536 * 2**20
MAX_CPU_S = 20  # a job; ten minutes of any format take under three
MAX_PCM_BYTES = 256 * 2**20  # of one upload, as float32 of all channels
MAX_EMPTY_PACKETS = 100_000
MIN_RATE_HZ, MAX_RATE_HZ = 4_000, 192_000
MAX_CHANNELS = 8
MAX_NON_FINITE = 0.01  # share of the samples
CODEC_SLACK_S = 0.5  # encoders pad the end; not the caller's fault
BLOCK_SAMPLES = 65_536  # of one channel, resampled at a time

DEMUXERS = {
    "mp3": "mp3",
    "wav": "wav",
    "flac": "flac",
    "ogg": "ogg",
    "m4a": "mov,mp4,m4a,3gp,3g2,mj2",  # one demuxer with many names
    "webm": "matroska,webm",
}
CODECS = ("pcm_", "adpcm_", "mp3", "flac", "vorbis", "opus", "aac", "alac", "speex", "gsm")


class PcmWriter:
    """Writes mono samples at one rate, from frames whose rate may change on the way.

    It counts the decoded samples, regardless of headers, and refuses too many.
    """

    def __init__(self, target: BinaryIO, rate: int, max_seconds: float) -> None:
        self._target = target
        self._rate = rate
        self._max_seconds = max_seconds
        self._resampler: StreamResampler | None = None
        self._waiting: list[NDArray[np.float32]] = []
        self._waiting_samples = 0
        self._seconds = 0.0
        self._samples = 0  # of all channels
        self._non_finite = 0

    def add(self, samples: NDArray[np.float32], rate: int) -> None:
        """Takes a frame, [channels, n] at `rate` Hz. Raises AudioTooLong or FileTooLarge."""
        finite = np.isfinite(samples)
        if not finite.all():
            self._non_finite += int(samples.size - np.count_nonzero(finite))
            samples = np.where(finite, samples, np.float32(0))
        self._samples += samples.size
        self._seconds += samples.shape[1] / rate
        if self._seconds > self._max_seconds + CODEC_SLACK_S:
            raise AudioTooLong(f"the audio is longer than {self._max_seconds:g} seconds")
        if self._samples * samples.itemsize > MAX_PCM_BYTES:
            raise FileTooLarge(f"the audio decodes to more than {MAX_PCM_BYTES >> 20} MiB")
        if self._resampler is None or rate != self._resampler.from_hz:
            self._flush(last=True)
            self._resampler = StreamResampler(rate, self._rate)
        self._waiting.append(np.clip(samples, -1.0, 1.0).mean(axis=0, dtype=np.float32))
        self._waiting_samples += samples.shape[1]
        if self._waiting_samples >= BLOCK_SAMPLES:
            self._flush()

    def finish(self) -> float:
        """Writes the rest, and gives the seconds of all. Raises InvalidAudio."""
        self._flush(last=True)
        if not self._samples:
            raise InvalidAudio("the file holds no audio")
        if self._non_finite > MAX_NON_FINITE * self._samples:
            raise InvalidAudio("the samples of the file are not numbers")
        return round(self._seconds, 6)

    def _flush(self, last: bool = False) -> None:
        """Writes the buffered samples; with `last` also those in the resampler."""
        block = np.concatenate(self._waiting) if self._waiting else np.zeros(0, np.float32)
        self._waiting, self._waiting_samples = [], 0
        if self._resampler is not None:
            block = self._resampler.process(block, last=last)
        self._target.write(np.clip(block, -1.0, 1.0).astype("<f4").tobytes())


def decode(job: dict[str, Any]) -> dict[str, Any]:
    """Decodes one file. Raises PipelineError."""
    with open(job["source"], "rb") as source, open(job["target"], "wb") as target:
        writer = PcmWriter(target, job["sample_rate"], job["max_seconds"])
        for samples, rate in _frames(source, DEMUXERS[job["format"]]):
            writer.add(samples, rate)
        return {"duration_s": writer.finish()}


def _frames(source: BinaryIO, demuxer: str) -> Iterator[tuple[NDArray[np.float32], int]]:
    """The decoded frames, float32 [channels, n] and their rate; stops at the first broken place.

    The demuxer is named and no protocol is allowed, so no file can make the library open another.
    """
    options = {"format_whitelist": demuxer, "protocol_whitelist": "none"}
    try:
        container: Any = av.open(source, format=demuxer.partition(",")[0], options=options)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise InvalidAudio("the file cannot be read as the format that it begins with") from error
    with container:
        stream = _audio_stream(container)
        empty = 0
        packets = container.demux(stream)
        while True:
            try:
                packet = next(packets, None)
            except (av.error.FFmpegError, ValueError, OverflowError):
                return  # truncated: the audio so far is valid
            if packet is None:
                return
            try:
                frames = packet.decode()
            except av.error.EOFError:
                return
            except (av.error.FFmpegError, ValueError, OverflowError):
                frames = []  # a damaged packet; the next may be intact
            if not frames:
                empty += 1
                if empty > MAX_EMPTY_PACKETS:
                    raise InvalidAudio("the file holds too many packets without audio")
            for frame in frames:
                if frame.samples:
                    _check_shape(frame.sample_rate, len(frame.layout.channels))
                    yield _to_float(frame), frame.sample_rate


def _audio_stream(container: Any) -> Any:
    """The first audio stream, with one thread. Raises InvalidAudio where there is none."""
    if not container.streams.audio:
        raise InvalidAudio("the file has no audio stream")
    for video in container.streams.video:
        if not video.disposition & av.stream.Disposition.attached_pic:
            raise InvalidAudio("the file is a video; send its audio alone")
    stream = container.streams.audio[0]
    codec = stream.codec_context
    if codec is None or not codec.name.startswith(CODECS):
        raise InvalidAudio("the file holds audio in a codec that is not supported")
    codec.thread_count = 1
    if codec.sample_rate and codec.layout.nb_channels:
        _check_shape(codec.sample_rate, codec.layout.nb_channels)
    return stream


def _check_shape(rate: int, channels: int) -> None:
    if not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
        raise InvalidAudio(f"the sample rate is outside {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz")
    if not 1 <= channels <= MAX_CHANNELS:
        raise InvalidAudio(f"the audio has more than {MAX_CHANNELS} channels")


def _to_float(frame: Any) -> NDArray[np.float32]:
    """Any sample format to float32 [channels, n]."""
    samples = frame.to_ndarray()
    if not frame.format.is_planar:
        samples = samples.reshape(-1, len(frame.layout.channels)).T
    if samples.dtype == np.uint8:
        return np.asarray((samples.astype(np.float32) - 128.0) / 128.0, np.float32)
    if samples.dtype.kind == "i":
        return np.asarray(samples / -float(np.iinfo(samples.dtype).min), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # float64 beyond float32 becomes infinite
        return np.asarray(samples, np.float32)


def main() -> None:
    """Serves jobs until standard input ends: then the service has ended."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    av.logging.set_level(None)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + MAX_CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        job = json.loads(line)
        try:
            answer = decode(job)
        except PipelineError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except MemoryError:
            answer = {"error": "InvalidAudio", "message": "the file takes too much memory"}
        if "error" in answer:
            Path(job["target"]).unlink(missing_ok=True)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
