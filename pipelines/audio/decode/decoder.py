"""Decodes uploads to pcm in sandboxed processes, which may crash without harm to the service. The
first bytes of a file determine its format; names and media types are hints only."""

import asyncio
import json
import logging
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from configs.environment import cores
from configs.settings import PROJECT_DIR
from models.audio import Pcm
from models.fairness.shares import Owner
from models.fairness.slots import FairSlots
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.decode.sandbox import Measure
from pipelines.audio.id3 import id3_length
from pipelines.errors import (
    AudioTooLong,
    FileTooLarge,
    InvalidAudio,
    Overloaded,
    PipelineError,
    StorageUnavailable,
)
from telemetry import metrics

logger = logging.getLogger(__name__)

WORKER_MODULE = "pipelines.audio.decode.worker"
MAX_DURATION_S = 600.0
JOB_TIMEOUT_S = 30.0  # timeout for audio of MAX_DURATION_S
MOST_LIVE = 64  # live streams in containers or Opus, each decoded by a process of its own
KILL_TIMEOUT_S = 5.0
MAX_WAITING = 32  # waiting uploads; beyond it, owners with the longest queues get Overloaded
MOST_WORKERS = 4
ANSWER_BYTES = 2**16
HEAD_BYTES = 64  # bytes that `sniff` needs, behind a tag
MOST_TAG_BYTES = 1 << 16  # a file with a longer tag, such as one with pictures, is taken for MP3

AudioFormat = Literal["mp3", "wav", "flac", "ogg", "m4a", "webm", "aac"]
OpenFile = BinaryIO | socket.socket

# Brands of MP4 files that may hold audio, those of 3GP included.
_MP4_BRAND = re.compile(rb"M4[ABPV] |F4[AV] |mp4[12]|iso[m2-9]|dash|cmf[c2]|MSNV|qt  |3g[p2egrs].")
# Major brands of pictures, which may name some of those brands as compatible.
_PICTURES = frozenset((b"heic", b"heix", b"mif1", b"msf1", b"avif", b"avis", b"crx "))
# GStreamer ends the name by a zero.
_WEBM = re.compile(rb"\x1a\x45\xdf\xa3.*?\x42\x82[\x84\x85]webm", re.DOTALL)
_REFUSAL = "the file is not MP3, WAV, FLAC, OGG, M4A, WebM or AAC audio"
_TEXT = f"{_REFUSAL}, but text, such as a web page"
_TOO_MANY_LIVE = "too many streams in containers or Opus are open: send PCM, or try again later"


@dataclass(frozen=True, slots=True)
class DecodedAudio:
    pcm: Pcm
    sample_rate: int  # Hz
    duration_s: float  # counted while decoding, not read from a header
    format: AudioFormat
    channels: int = 1  # channels of the file


class WorkerDied(Exception):
    """The decoder process ended without an answer, which is not the fault of a file."""


class AudioDecoder(AbstractAsyncContextManager["AudioDecoder"]):
    """Decoder of several files at a time, in a process that the first upload starts."""

    def __init__(
        self,
        workers: int | None = None,
        max_waiting: int = MAX_WAITING,
        timeout_s: float = JOB_TIMEOUT_S,
    ) -> None:
        """`workers` is the number of files at a time, by default one per core, 2 to MOST_WORKERS.
        `timeout_s` includes the start of the process; CPU time has its own limit."""
        self._process = DecoderProcess(timeout_s)
        self.live_places = FairSlots(
            MOST_LIVE, max_waiting=0, refusal=partial(Overloaded, _TOO_MANY_LIVE)
        )
        workers = workers or max(2, min(cores(), MOST_WORKERS))
        self._slots = FairSlots(
            workers, max_waiting, partial(Overloaded, "too many files wait to be decoded")
        )

    async def start(self) -> None:
        """Starts the process ahead of the first upload; calling it is optional."""
        try:
            await self._process.start()
        except WorkerDied:  # the first upload tries again
            logger.exception("decoder_not_started")

    async def close(self) -> None:
        await self._process.stop()

    async def run_live(self, job: dict[str, Any], wire: socket.socket) -> None:
        """Decodes a stream that comes over `wire`, in the protocol of `worker.LiveWire`. Raises
        InvalidAudio, AudioTooLong, FileTooLarge or Overloaded. Cancelling ends the work."""
        try:
            with metrics.live_decodes.track_inprogress():
                answer = await self._process.run(job, wire, wire)
                _duration_and_channels(answer, job["max_seconds"])
        except WorkerDied as error:
            raise Overloaded("the decoder has ended; connect again") from error
        except PipelineError as error:
            metrics.decode_failures.labels(error.code).inc()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def decode(
        self,
        path: Path,
        *,
        owner: Owner = "",
        sample_rate: int = STT_SAMPLE_RATE,
        max_duration_s: float = MAX_DURATION_S,
        stop_s: float | None = None,
        channel: int | None = None,
    ) -> DecodedAudio:
        """Decodes a file of a temporary directory to mono pcm, mapped from an unnamed file there.

        Decoding stops soon after `stop_s`. `channel` selects a channel; by default all are
        averaged. Owners (workspaces) take turns, and a file that fails uses up a turn as any other.
        Raises InvalidAudio, AudioTooLong, FileTooLarge or Overloaded. Cancelling ends the work."""
        try:
            with metrics.decode_seconds.time():
                audio_format = sniff(await asyncio.to_thread(head_of, path))
                job = {
                    "format": audio_format,
                    "sample_rate": sample_rate,
                    "max_seconds": max_duration_s,
                    "stop_seconds": stop_s,
                    "channel": channel,
                }
                pcm, duration_s, channels = await self._decode(path, owner, job)
        except PipelineError as error:
            metrics.decode_failures.labels(error.code).inc()
            raise
        return DecodedAudio(pcm, sample_rate, duration_s, audio_format, channels)

    async def _decode(
        self, path: Path, owner: Owner, job: dict[str, Any]
    ) -> tuple[Pcm, float, int]:
        async with AsyncExitStack() as turn:
            with metrics.decodes_waiting.track_inprogress():
                await turn.enter_async_context(self._slots.slot(owner))
            source, target = await asyncio.to_thread(_open_files, path)
            with source, target:
                try:
                    try:
                        answer = await self._process.run(job, source, target)
                    except WorkerDied:  # not caused by a file, as only children read files
                        source.seek(0)
                        target.seek(0)
                        target.truncate()
                        answer = await self._process.run(job, source, target)
                except WorkerDied as error:
                    logger.exception("decoder_not_started")
                    raise Overloaded("the decoder does not start; try again later") from error
                except TimeoutError as error:
                    raise InvalidAudio("the file cannot be decoded within its limits") from error
                duration_s, channels = _duration_and_channels(answer, job["max_seconds"])
                return await asyncio.to_thread(_map, target), duration_s, channels


class DecoderProcess:
    """Process that forks a sandboxed child for each file; if it dies, the next job restarts it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()  # an early start and the first jobs may coincide

    async def start(self) -> asyncio.subprocess.Process:
        """Starts the process unless it runs. Raises WorkerDied."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self.stop()
                control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                control.setblocking(False)
                self._control = control  # `stop` closes it, also when the start is cancelled
                with theirs:
                    self._process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-m",
                        WORKER_MODULE,
                        stdin=theirs.fileno(),
                        stdout=asyncio.subprocess.DEVNULL,
                        stderr=asyncio.subprocess.DEVNULL,
                        cwd=PROJECT_DIR,
                        env=_environment(),
                    )
                held = b""
                try:
                    held = await asyncio.get_running_loop().sock_recv(control, ANSWER_BYTES)
                finally:
                    if not held:
                        await asyncio.shield(self.stop())
                if not held:
                    raise WorkerDied
                _report(json.loads(held))
            return self._process

    async def run(self, job: dict[str, Any], source: OpenFile, target: OpenFile) -> bytes:
        """Runs a job in a child; returns its answer, as `pipelines.audio.decode.worker` defines it.
        The child has then ended. Raises WorkerDied, or TimeoutError for a file."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = None
        answer = b""
        try:
            longer = max(1.0, job["max_seconds"] / MAX_DURATION_S)
            async with asyncio.timeout(None if "channels" in job else self._timeout_s * longer):
                with theirs:
                    process = await self.start()
                    files = [file.fileno() for file in (theirs, source, target)]
                    assert self._control is not None
                    socket.send_fds(self._control, [json.dumps(job).encode()], files)
                # A child that sends more is ended: reading on would keep the event loop busy.
                while len(answer) < ANSWER_BYTES and (
                    part := await loop.sock_recv(ours, ANSWER_BYTES)
                ):
                    answer += part
        except TimeoutError:
            raise
        except OSError as error:
            raise WorkerDied from error
        finally:
            # Shielded, since a cancelled caller's child must end too.
            await asyncio.shield(self._end_child(ours, process, bool(answer)))
        if not answer:
            raise WorkerDied
        return answer

    async def stop(self) -> None:
        """Kills the process with its children, if there is one, and waits for its end."""
        process, self._process = self._process, None
        control, self._control = self._control, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if control is not None:
            control.close()

    async def _end_child(
        self, reply: socket.socket, process: asyncio.subprocess.Process | None, answered: bool
    ) -> None:
        """Lets the process kill the child of a job; kills the process itself if it does not."""
        loop = asyncio.get_running_loop()
        with reply:
            try:
                async with asyncio.timeout(KILL_TIMEOUT_S):
                    reply.shutdown(socket.SHUT_WR)
                    while await loop.sock_recv(reply, ANSWER_BYTES):
                        answered = True
            except (TimeoutError, OSError):
                answered = False
            if not answered and process is not None and process is self._process:
                await self.stop()


def sniff(head: bytes) -> AudioFormat:
    """Determines the format of a file by its first `head_bytes`. Raises InvalidAudio for others."""
    audio = head[id3_length(head) :]  # some taggers put ID3 before every format
    if audio[:4] in (b"RIFF", b"RF64", b"BW64") and audio[8:12] == b"WAVE":
        return "wav"
    if audio[:4] == b"fLaC":
        return "flac"
    if audio[:4] == b"OggS":
        return "ogg"
    if audio[4:8] == b"ftyp" and audio[8:12] not in _PICTURES:
        if any(map(_MP4_BRAND.fullmatch, _brands(audio))):
            return "m4a"
    if _WEBM.match(audio):  # recordings of browsers
        return "webm"
    if len(audio) > 2 and audio[0] == 0xFF and audio[1] & 0xF6 == 0xF0 and audio[2] >> 2 & 15 < 13:
        return "aac"  # ADTS
    if audio != head or _is_mp3_frame(head):
        return "mp3"
    if not head:
        raise InvalidAudio("the file is empty")
    raise InvalidAudio(_TEXT if head.isascii() and b"\0" not in head else _REFUSAL)


def _brands(head: bytes) -> Iterator[bytes]:
    """Yields the major and compatible brands of an MP4 file. A recorder's own major brand says less
    than the standards that it names as compatible."""
    end = min(int.from_bytes(head[:4]), len(head))
    yield head[8:12]
    yield from (head[at : at + 4] for at in range(16, end - 3, 4))


def _is_mp3_frame(head: bytes) -> bool:
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer == 1 and bitrate not in (0, 15) and rate != 3


def head_bytes(start: bytes) -> int:
    """Number of bytes that `sniff` needs of a file that starts with `start`, ten bytes or more."""
    return HEAD_BYTES + min(id3_length(start), MOST_TAG_BYTES)


def head_of(path: Path) -> bytes:
    """Reads the bytes of a file that `sniff` needs."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
        return start + file.read(head_bytes(start) - HEAD_BYTES)


def _open_files(path: Path) -> tuple[BinaryIO, BinaryIO]:
    return path.open("rb", buffering=0), tempfile.TemporaryFile(buffering=0, dir=path.parent)


def _map(pcm: BinaryIO) -> Pcm:
    """Maps the samples of a file, so that ten minutes do not take 38 MB of memory."""
    if not os.fstat(pcm.fileno()).st_size:
        return np.zeros(0, np.float32)
    return np.asarray(np.memmap(pcm, np.float32, "c"))


def _duration_and_channels(answer: bytes, max_s: float) -> tuple[float, int]:
    """Reads an answer. Raises the child's error, or InvalidAudio for an implausible answer."""
    expected = (AudioTooLong, FileTooLarge, StorageUnavailable)
    refusals: dict[str, type[PipelineError]] = {error.__name__: error for error in expected}
    try:
        content = json.loads(answer)
        if "error" in content:
            raise refusals.get(content["error"], InvalidAudio)(str(content["message"]))
        duration_s = float(content["duration_s"])
        if 0 <= duration_s <= max_s + 1:
            return duration_s, int(content["channels"])
    except (ValueError, TypeError, KeyError):
        pass
    raise InvalidAudio("the file cannot be decoded")


def _report(held: dict[Measure, bool]) -> None:
    for measure, holds in held.items():
        metrics.decoder_sandbox.labels(measure).set(holds)
    missing = [measure for measure, holds in held.items() if not holds]
    log = logger.warning if missing else logger.info
    log(
        "decoder_sandbox", extra={"held": [name for name in held if held[name]], "missing": missing}
    )


def _environment() -> dict[str, str]:
    """Environment of the process, with Python's paths and without secrets."""
    passed_on = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    kept = {name: os.environ[name] for name in passed_on if name in os.environ}
    return {**kept, "PYTHONPATH": str(PROJECT_DIR), "OPENBLAS_NUM_THREADS": "1"}
