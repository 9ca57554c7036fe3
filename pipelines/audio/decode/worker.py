"""Decodes uploads by FFmpeg (PyAV), each in a sandboxed child that this process forks.

`python -m pipelines.audio.decode.worker` gets jobs over the socket that is its standard input. Each
is a message `{"format", "sample_rate", "max_seconds"}`, with `channel` if it selects one, and three
open files: a socket for the answer, the source and the target. The answer is `{"duration_s",
"channels"}`, with mono float32 samples in the target, or `{"error", "message"}`, and then the end
of the stream. If the caller shuts down its end of that socket, the child is killed. The process
itself reads no upload, so no file can harm the decoding of the next. It imports little, so that a
child starts in milliseconds.

A job with `channels` is a live stream: source and target are one socket of messages
(`LiveWire`)."""

import gc
import io
import json
import math
import os
import re
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would reserve address space

import av
import numpy as np
from numpy.typing import NDArray

from configs.environment import MODEL_NICENESS
from models.audio import Pcm, StreamResampler, find_samples, float_to_pcm16, linear_to_float
from pipelines.audio.decode import sandbox
from pipelines.audio.levels import Mixdown
from pipelines.errors import NO_SPACE, AudioTooLong, FileTooLarge, InvalidAudio, PipelineError

MAX_MEMORY_BYTES = 320 * 2**20  # address space, in addition to the libraries' 200 MiB
USUAL_S = 600.0  # length of audio to which the next two limits apply
MAX_CPU_S = 10  # per file; ten minutes of an ordinary file take under 1 s
MAX_PCM_BYTES = 256 * 2**20  # per upload, as float32 of all channels
# Packets and frames together, each of which takes 5 to 10 us. Ordinary files have under 200 a
# second, Opus in frames of 2.5 ms 800, FLAC in blocks of 16 samples 2,000 and more.
MAX_STEPS_PER_S = 1000
FREE_STEPS = 20_000
MIN_RATE_HZ, MAX_RATE_HZ = 4_000, 192_000
MAX_CHANNELS = 8
MAX_NON_FINITE = 0.01  # share of the samples
CODEC_SLACK_S = 0.5  # encoders pad the end; not the caller's fault
# Gaps in the times of a container, such as those of lost packets, a muted microphone or audio that
# begins after its video. Shorter ones are jitter. Longer ones join two recordings, as when a page
# sends the head of a live stream before each of its later pieces.
MIN_GAP_S = 0.1
MAX_DELAY_S = 60.0  # before the first sample
MAX_GAP_SHARE = 0.1  # share of the longest audio
BLOCK_SAMPLES = 8_192  # samples per channel that are converted and resampled at a time
MESSAGE_BYTES = 4096  # size of a job or an answer
LIVE_BYTES = 2**14  # bytes of a message of a live stream, and samples of a reply
# CPU time of a live stream: a base, and a share of its seconds; Opus takes 0.006.
FREE_CPU_S = 2.0
MAX_CPU_SHARE = 0.1

# Demuxer and decoders of each format; FFmpeg gets no others, even while it probes a file.
ACCEPTED = {
    "mp3": ("mp3", "mp3float"),
    "wav": (
        "wav",
        "pcm_u8,pcm_s16le,pcm_s24le,pcm_s32le,pcm_f32le,pcm_f64le,pcm_alaw,pcm_mulaw,"
        "adpcm_ms,adpcm_ima_wav,gsm_ms,mp3float",
    ),
    "flac": ("flac", "flac"),
    "ogg": ("ogg", "opus,vorbis,flac,speex"),
    # One demuxer with many names. QuickTime's files may hold PCM, and those of telephones AMR.
    "m4a": (
        "mov,mp4,m4a,3gp,3g2,mj2",
        "aac,alac,mp3float,opus,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,amrnb,amrwb",
    ),
    "webm": ("matroska,webm", "opus,vorbis"),
    "aac": ("aac", "aac"),
}
# Channels, rate and bits of linear samples, in `fmt `; a tag of FFFE is followed by the real one.
_LINEAR_WAV = re.compile(
    rb"(?:\x01\0|\xfe\xff(?=.{22}\x01\0))(..)(.{4}).{6}([\x08\x10\x18\x20]\0)", re.DOTALL
)
_SIGNED = bytes(byte ^ 0x80 for byte in range(256))  # samples of 8 bits have no sign
PACKETS = "opus"  # without a container: one packet per message
# Without these FFmpeg reads on for more than a second; `nobuffer` would lose the first frames.
_AT_ONCE = {"probesize": "32", "analyzeduration": "1"}
_EMPTY: Pcm = np.zeros(0, np.float32)


@dataclass(eq=False, repr=False)
class PcmWriter:
    """Writer of mono samples at one rate, from blocks whose rate may change. It counts the decoded
    samples, regardless of headers, and refuses too many."""

    _write_samples: Callable[[Pcm], object]
    _rate: int
    _max_seconds: float
    _channel: int | None = None  # None averages all channels
    _quality: str = "HQ"  # quality of StreamResampler
    _mixdown: Mixdown = field(default_factory=Mixdown)
    _resampler: StreamResampler | None = None
    channels: int = 1  # most channels of a block
    _seconds: float = 0.0
    _samples: int = 0  # samples of all channels
    _non_finite: int = 0

    def add(self, samples: NDArray[np.float32], rate: int) -> None:
        """Takes a block, [channels, n] at `rate` Hz. Raises AudioTooLong or FileTooLarge."""
        finite = np.isfinite(samples)
        if not finite.all():
            self._non_finite += int(samples.size - np.count_nonzero(finite))
            samples = np.where(finite, samples, np.float32(0))
        self.channels = max(self.channels, len(samples))
        self._samples += samples.size
        self._seconds += samples.shape[1] / rate
        if self._seconds > self._max_seconds + CODEC_SLACK_S:
            raise AudioTooLong(f"the audio is longer than {self._max_seconds:g} seconds")
        most_bytes = round(MAX_PCM_BYTES * _scale(self._max_seconds))
        if self._samples * samples.itemsize > most_bytes:
            raise FileTooLarge(f"the audio decodes to more than {most_bytes >> 20} MiB")
        if self._resampler is None or rate != self._resampler.from_hz:
            self._write(_EMPTY, last=True)
            self._resampler = StreamResampler(rate, self._rate, self._quality)
        if self._channel is not None and self._channel >= len(samples):
            raise InvalidAudio("the audio has one channel; multichannel needs two")
        chosen = samples if self._channel is None else samples[self._channel, None]
        self._write(self._mixdown.mix(np.clip(chosen, -1.0, 1.0)))

    def finish(self) -> float:
        """Writes the rest, and returns the seconds of all audio. Raises InvalidAudio."""
        self._write(_EMPTY, last=True)
        if not self._samples:
            raise InvalidAudio("the file holds no audio")
        if self._non_finite > MAX_NON_FINITE * self._samples:
            raise InvalidAudio("the samples of the file are not numbers")
        return round(self._seconds, 6)

    def _write(self, block: NDArray[np.float32], last: bool = False) -> None:
        """Resamples and writes a block; `last` also flushes the resampler."""
        if self._resampler is not None:
            block = self._resampler.process(block, last=last)
        self._write_samples(np.clip(block, -1.0, 1.0))


def _scale(max_seconds: float) -> float:
    """Factor by which a long recording may take more of each limit."""
    return max(1.0, max_seconds / USUAL_S)


def decode(job: dict[str, Any], source: BinaryIO, target: BinaryIO) -> dict[str, Any]:
    """Decodes one file, or one live stream. Raises PipelineError."""
    if "channels" in job:
        return _decode_live(job, LiveWire(source.fileno(), job["sample_rate"]))

    def write(pcm: Pcm) -> None:
        target.write(pcm.astype("<f4").tobytes())

    writer = PcmWriter(write, job["sample_rate"], job["max_seconds"], job.get("channel"))
    seconds = 0.0
    frames = _frames(source, *ACCEPTED[job["format"]])
    longest_gap_s = MAX_GAP_SHARE * job["max_seconds"]
    for samples, rate in _blocks(frames, BLOCK_SAMPLES, longest_gap_s):
        writer.add(samples, rate)
        seconds += samples.shape[1] / rate
        if seconds >= (job.get("stop_seconds") or math.inf):
            break
    return {"duration_s": writer.finish(), "channels": writer.channels}


class LiveWire:
    """A live client's bytes as a file without seeking, and the way back for samples.

    The child asks by a message of one byte, and gets the next bytes in one message, or the end of
    the stream. When it has used all bytes, it sends messages of a channel number and the channel's
    int16 samples, and then asks again."""

    def __init__(self, file: int, rate: int) -> None:
        self._file = file
        self._rate = rate
        self._rest = b""
        self._samples = 0  # samples of channel 0

    def read(self, size: int) -> bytes:
        """Reads the next bytes. Raises InvalidAudio if decoding takes too much time."""
        if not self._rest:
            if time.process_time() > FREE_CPU_S + MAX_CPU_SHARE * self._samples / self._rate:
                raise InvalidAudio("the stream takes too long to decode for so little audio")
            os.write(self._file, b"?")
            self._rest = os.read(self._file, LIVE_BYTES)
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def unread(self, data: bytes) -> None:
        self._rest = data + self._rest

    def send(self, channel: int, pcm: Pcm) -> None:
        self._samples += 0 if channel else len(pcm)
        for at in range(0, len(pcm), LIVE_BYTES):
            os.write(self._file, bytes([channel]) + float_to_pcm16(pcm[at : at + LIVE_BYTES]))


def _decode_live(job: dict[str, Any], wire: LiveWire) -> dict[str, Any]:
    """Decodes a stream as it comes, several `channels` separately. Raises PipelineError."""
    channels: int = job["channels"]
    writers = [
        PcmWriter(
            partial(wire.send, channel),
            job["sample_rate"],
            job["max_seconds"],
            channel if channels > 1 else None,
            "LQ",  # same as for other live audio
        )
        for channel in range(channels)
    ]
    if job["format"] == PACKETS:
        blocks = _blocks(_frames_of_packets(wire), 1)
    elif job["format"] == "wav":
        blocks = _blocks_of_wav(wire)
    else:
        blocks = _blocks(_frames(wire, *ACCEPTED[job["format"]], _AT_ONCE), 1)
    for samples, rate in blocks:
        for writer in writers:
            writer.add(samples, rate)
    return {"duration_s": [writer.finish() for writer in writers][0], "channels": channels}


def _blocks_of_wav(wire: LiveWire) -> Iterator[tuple[NDArray[np.float32], int]]:
    """Yields linear samples as they come, without the chunks after them. FFmpeg, which decodes the
    other encodings, reads 64 KiB of linear samples (4 s of a telephone's) before the first."""
    data = b""
    header = None
    while header is None and len(data) < LIVE_BYTES and (part := wire.read(LIVE_BYTES)):
        data += part
        header = find_samples(data)
    form, at, size = header or (b"", 0, 0)
    linear = _LINEAR_WAV.match(form) if data.startswith(b"RIFF") else None
    wire.unread(data[at:] if linear else data)
    if linear is None:
        yield from _blocks(_frames(wire, *ACCEPTED["wav"], _AT_ONCE), 1)
        return
    channels, rate, bits = (int.from_bytes(field, "little") for field in linear.groups())
    _check_shape(rate, channels)
    left = size or math.inf  # 0: not known
    data = b""
    while part := wire.read(LIVE_BYTES):
        data += part[: int(min(left, len(part)))]
        left = max(0, left - len(part))
        if whole := len(data) - len(data) % (bits // 8 * channels):
            signed = data[:whole].translate(_SIGNED) if bits == 8 else data[:whole]
            yield linear_to_float(signed, bits // 8).reshape(-1, channels).T, rate
        data = data[whole:]


def _frames_of_packets(wire: LiveWire) -> Iterator[Any]:
    """Yields frames of Opus, stereo at 48 kHz. Raises InvalidAudio for an invalid first packet."""
    codec: Any = av.CodecContext.create("opus", "r")
    codec.sample_rate, codec.layout = 48_000, "stereo"
    is_first = True
    while packet := wire.read(LIVE_BYTES):
        try:
            yield from codec.decode(av.Packet(packet))
        except (av.error.FFmpegError, ValueError, OverflowError) as error:
            if is_first:
                raise InvalidAudio("the first message is not a packet of Opus") from error
        is_first = False


def _blocks(
    frames: Iterable[Any], least_samples: int, longest_gap_s: float = 0.0
) -> Iterator[tuple[NDArray[np.float32], int]]:
    """Yields decoded audio in blocks, float32 [channels, n], with its rate. Frames are gathered
    before they are converted: an array for each takes 100 us, a queue 10 us. Gaps of up to
    `longest_gap_s` become silence."""
    gathered = av.AudioFifo()
    shape = None
    end_s = 0.0  # end of the blocks so far, in the times of the container
    most_s = min(longest_gap_s, MAX_DELAY_S)
    for frame in frames:
        frame_shape = frame.format.name, frame.sample_rate, frame.layout.nb_channels
        if frame_shape != shape:
            yield from _drained(gathered)
            _check_shape(frame.sample_rate, frame.layout.nb_channels)
            gathered = av.AudioFifo()
            shape = frame_shape
        start_s = end_s if frame.time is None else frame.time
        if start_s - end_s > MIN_GAP_S:
            yield from _drained(gathered)
            if start_s - end_s <= most_s:
                yield from _silence(start_s - end_s, frame.sample_rate, frame.layout.nb_channels)
            end_s = start_s
        most_s = longest_gap_s
        end_s += frame.samples / frame.sample_rate
        frame.pts = None  # a queue refuses times that do not follow one another
        gathered.write(frame)
        if gathered.samples >= least_samples:
            yield from _drained(gathered)
    yield from _drained(gathered)


def _silence(seconds: float, rate: int, channels: int) -> Iterator[tuple[NDArray[np.float32], int]]:
    """Yields blocks of at most a second, since a limit may end a long gap."""
    for at in range(0, samples := round(seconds * rate), rate):
        yield np.zeros((channels, min(rate, samples - at)), np.float32), rate


def _drained(gathered: av.AudioFifo) -> Iterator[tuple[NDArray[np.float32], int]]:
    if (frame := gathered.read()) is not None:
        yield _to_float(frame), frame.sample_rate


def _frames(
    source: BinaryIO | LiveWire, demuxer: str, decoders: str, more: dict[str, str] | None = None
) -> Iterator[Any]:
    """Yields decoded frames; stops at the first broken place. Raises InvalidAudio. The demuxer is
    named and no protocol is allowed, so no file can make the library open another."""
    options = {
        "format_whitelist": demuxer,
        "codec_whitelist": decoders,
        "protocol_whitelist": "none",
        **(more or {}),
    }
    try:
        container: Any = av.open(source, format=demuxer.partition(",")[0], options=options)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise InvalidAudio("the file cannot be read as the format that it begins with") from error
    with container:
        stream = _audio_stream(container, decoders.split(","))
        steps, seconds = -FREE_STEPS, 0.0
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
            for frame in frames:
                if frame.samples:
                    seconds += frame.samples / max(frame.sample_rate, 1)
                    yield frame
            steps += 1 + len(frames)
            if steps > MAX_STEPS_PER_S * seconds:
                raise InvalidAudio(
                    f"the file is cut into too many pieces: {MAX_STEPS_PER_S} packets and frames "
                    "for a second of audio are allowed; encode it with longer frames"
                )


def _audio_stream(container: Any, decoders: list[str]) -> Any:
    """Opens the default audio stream, or else the first, with one thread. Raises InvalidAudio
    without one that `decoders` read."""
    if not container.streams.audio:
        raise InvalidAudio("the file has no audio stream")
    streams = [
        stream
        for stream in container.streams.audio
        if stream.codec_context is not None and stream.codec_context.name in decoders
    ]
    if not streams:
        raise InvalidAudio("the file holds audio in a codec that is not supported")
    is_default = av.stream.Disposition.default
    stream = next((stream for stream in streams if stream.disposition & is_default), streams[0])
    codec = stream.codec_context
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
    """Converts any sample format to float32 [channels, n]."""
    samples = frame.to_ndarray()
    if not frame.format.is_planar:
        samples = samples.reshape(-1, len(frame.layout.channels)).T
    if samples.dtype == np.uint8:
        return np.asarray((samples.astype(np.float32) - 128.0) / 128.0, np.float32)
    if samples.dtype.kind == "i":
        return np.asarray(samples / -float(np.iinfo(samples.dtype).min), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # float64 beyond float32 becomes infinite
        return np.asarray(samples, np.float32)


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    life: int  # a pipe that ends with the child
    reply: socket.socket  # socket of its answer


def main() -> None:
    """Serves jobs until the service has ended."""
    # Keeps Ctrl-C of the terminal away. A session of its own would get as much of the cores as the
    # whole service, where Linux groups tasks by session (autogroups).
    os.setpgrp()
    control = socket.socket(fileno=0)
    av.logging.set_level(None)
    _warm_up()
    held = sandbox.enter(MAX_MEMORY_BYTES)
    control.send(json.dumps(held).encode())
    gc.collect()
    gc.freeze()  # lets children share this memory
    events = selectors.PollSelector()
    events.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in events.select()[:1]:  # a single one, since it may invalidate the others
            child: _Child | None = key.data
            if child is None:
                message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
                if not message:
                    return  # children end with this process
                child = _fork(json.loads(message), *files)
                events.register(child.life, selectors.EVENT_READ, child)
                events.register(child.reply, selectors.EVENT_READ, child)
            elif key.fd == child.life:
                events.unregister(child.life)
                if child.reply in events.get_map():
                    events.unregister(child.reply)
                _reap(child)
            else:  # the caller has given up
                events.unregister(child.reply)
                os.kill(child.pid, signal.SIGKILL)


def _warm_up() -> None:
    """Loads what Python and the libraries load at first use, since children can open no file."""
    head = "52494646 24080000 57415645 666d7420 10000000 01000100 401f0000 803e0000 02001000"
    wav = bytes.fromhex(head) + b"data" + (2048).to_bytes(4, "little") + bytes(2048)
    job = {"format": "wav", "sample_rate": 16_000, "max_seconds": 1}
    decode(job, io.BytesIO(wav), io.BytesIO())


def _fork(job: dict[str, Any], reply: int, source: int, target: int) -> _Child:
    answer = socket.socket(fileno=reply)
    answer.setblocking(False)
    life, end = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            _decode_in_child(job, reply, source, target, end)
        finally:
            os._exit(1)
    for file in (source, target, end):
        os.close(file)
    return _Child(pid, life, answer)


def _decode_in_child(job: dict[str, Any], reply: int, source: int, target: int, end: int) -> None:
    """Decodes with no other open file than these, and ends the process."""
    os.dup2(1, 0)  # standard output leads nowhere
    for first, last in pairwise((2, *sorted((reply, source, target, end)), sandbox.OPEN_FILES)):
        os.closerange(first + 1, last)
    if "channels" not in job:  # a whole file, and not live audio
        os.nice(MODEL_NICENESS)
    with open(source, "rb") as received, open(target, "wb") as pcm:
        most = int((job["max_seconds"] + 1) * job["sample_rate"]) * 4
        sandbox.confine(round(MAX_CPU_S * _scale(job["max_seconds"])), most)
        try:
            answer = decode(job, received, pcm)
            pcm.flush()
        except PipelineError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            answer = {"error": "StorageUnavailable", "message": "there is no room for samples"}
        except MemoryError:
            answer = {"error": "InvalidAudio", "message": "the file takes too much memory"}
        os.write(reply, json.dumps(answer).encode())
        os._exit(0)


def _reap(child: _Child) -> None:
    """Reaps a child, and answers for one that died without an answer."""
    os.kill(child.pid, signal.SIGKILL)  # it may only have closed its end
    _, status = os.waitpid(child.pid, 0)
    if status:
        message = "the file cannot be decoded"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            message = f"the file takes more than {MAX_CPU_S} seconds to decode"
        with suppress(OSError):  # the caller has given up
            answer = {"error": "InvalidAudio", "message": message}
            child.reply.send(json.dumps(answer).encode())
    child.reply.close()
    os.close(child.life)


if __name__ == "__main__":
    main()
