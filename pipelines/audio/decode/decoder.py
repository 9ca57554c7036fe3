"""Decodes uploads to pcm in sandboxed processes, which may crash without harm to the service.

The first bytes of a file determine its format; names and media types are hints only.
"""

import asyncio
import json
import logging
import os
import socket
import sys
import tempfile
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

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
JOB_TIMEOUT_S = 30.0  # of MAX_DURATION_S
MOST_LIVE = 64  # streams that are decoded while they come, each by a process of its own
KILL_TIMEOUT_S = 5.0
MAX_WAITING = 32  # uploads; of more, owners with the longest queues get Overloaded
MOST_WORKERS = 4
ANSWER_BYTES = 2**16

AudioFormat = Literal["mp3", "wav", "flac", "ogg", "m4a", "webm", "aac"]

HEAD_BYTES = 64  # what `sniff` looks at, behind a tag
MOST_TAG_BYTES = 1 << 16  # what is behind a longer one, with pictures, is taken for MP3

# Major brands of MP4 files that may hold audio only; pictures (heic, avif) have their own.
_MP4_BRANDS = frozenset(
    "M4A |M4B |M4P |F4A |mp41|mp42|isom|iso2|iso3|iso4|iso5|iso6|dash|qt  ".split("|")
)
_EBML = b"\x1a\x45\xdf\xa3"
_REFUSAL = "the file is not MP3, WAV, FLAC, OGG, M4A, WebM or AAC audio"
_TOO_MANY_LIVE = "too many streams are in containers or Opus now: send PCM, or try later"


@dataclass(frozen=True, slots=True)
class DecodedAudio:
    """The audio of an upload."""

    pcm: Pcm
    sample_rate: int  # Hz
    duration_s: float  # counted while decoding, not read from a header
    format: AudioFormat


OpenFile: TypeAlias = BinaryIO | socket.socket


class WorkerDied(Exception):
    """The decoder process ended without an answer, which is not the fault of a file."""


class AudioDecoder(AbstractAsyncContextManager["AudioDecoder"]):
    """Decodes some files at a time, by a process that the first upload starts."""

    def __init__(
        self,
        workers: int | None = None,
        max_waiting: int = MAX_WAITING,
        timeout_s: float = JOB_TIMEOUT_S,
    ) -> None:
        """`workers` files at a time, by default one for each core, 2 to MOST_WORKERS.

        `timeout_s` is for one file and the start of the process; CPU time has its own limit.
        """
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
            logger.exception("decoder_does_not_start")

    async def close(self) -> None:
        """Ends the process."""
        await self._process.stop()

    async def run_live(self, job: dict[str, Any], wire: socket.socket) -> None:
        """Decodes a stream, which `wire` brings as `worker.LiveWire` has it, until its end.

        Raises InvalidAudio, AudioTooLong, FileTooLarge or Overloaded. Cancelling ends the work.
        """
        try:
            with metrics.live_decodes.track_inprogress():
                _duration_s(await self._process.run(job, wire, wire), job["max_seconds"])
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
        channel: int | None = None,
    ) -> DecodedAudio:
        """Mono pcm of a file of a temporary directory, which lies in an unnamed file there: one
        channel, by default the mean of all.

        Owners (workspaces) take turns, and a file that fails uses up a turn as any other. Raises
        InvalidAudio, AudioTooLong, FileTooLarge or Overloaded. Cancelling ends the work.
        """
        try:
            with metrics.decode_seconds.time():
                audio_format = sniff(await asyncio.to_thread(head_of, path))
                job = {
                    "format": audio_format,
                    "sample_rate": sample_rate,
                    "max_seconds": max_duration_s,
                    "channel": channel,
                }
                pcm, duration_s = await self._decode(path, owner, job)
        except PipelineError as error:
            metrics.decode_failures.labels(error.code).inc()
            raise
        return DecodedAudio(pcm, sample_rate, duration_s, audio_format)

    async def _decode(self, path: Path, owner: Owner, job: dict[str, Any]) -> tuple[Pcm, float]:
        async with AsyncExitStack() as turn:
            with metrics.decodes_waiting.track_inprogress():
                await turn.enter_async_context(self._slots.slot(owner))
            source, target = await asyncio.to_thread(_open_files, path)
            with source, target:
                try:
                    try:
                        answer = await self._process.run(job, source, target)
                    except WorkerDied:  # not by a file, which only a child reads: once more
                        source.seek(0)
                        target.seek(0)
                        target.truncate()
                        answer = await self._process.run(job, source, target)
                except WorkerDied as error:
                    logger.exception("decoder_does_not_start")
                    raise Overloaded("the decoder does not start; try again later") from error
                except TimeoutError as error:
                    raise InvalidAudio("the file cannot be decoded within its limits") from error
                duration_s = _duration_s(answer, job["max_seconds"])
                return await asyncio.to_thread(_map, target), duration_s


class DecoderProcess:
    """The process that forks a sandboxed child for each file; after its death the next job starts
    another."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()  # an early start and the first jobs may coincide

    async def start(self) -> asyncio.subprocess.Process:
        """The running process. Raises WorkerDied."""
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
        """The answer of the child that decodes `source`, as `pipelines.audio.decode.worker` has it.

        The child has ended then. Raises WorkerDied, or TimeoutError for a file.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process, answer = None, b""
        try:
            longer = max(1.0, job["max_seconds"] / MAX_DURATION_S)
            async with asyncio.timeout(None if "channels" in job else self._timeout_s * longer):
                with theirs:
                    process = await self.start()
                    files = [one.fileno() for one in (theirs, source, target)]
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
        """Has the child of a job killed. If the process does not do it, it is killed itself."""
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
    """The format of a file that starts with `head`, of `head_bytes`.

    Raises InvalidAudio for every other format.
    """
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if head[4:8] == b"ftyp" and head[8:12].decode("latin-1") in _MP4_BRANDS:
        return "m4a"
    if head[:4] == _EBML and b"\x42\x82\x84webm" in head:  # what browsers record
        return "webm"
    audio = head[id3_length(head) :]
    if len(audio) > 2 and audio[0] == 0xFF and audio[1] & 0xF6 == 0xF0 and audio[2] >> 2 & 15 < 13:
        return "aac"  # in ADTS
    if audio != head or _is_mp3_frame(head):
        return "mp3"
    raise InvalidAudio(_REFUSAL if head else "the file is empty")


def _is_mp3_frame(head: bytes) -> bool:
    """Whether `head` opens with the header of an MPEG audio frame of layer III."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer == 1 and bitrate not in (0, 15) and rate != 3


def head_bytes(start: bytes) -> int:
    """How many bytes `sniff` needs of a file that starts with at least ten of them."""
    return HEAD_BYTES + min(id3_length(start), MOST_TAG_BYTES)


def head_of(path: Path) -> bytes:
    """What `sniff` needs of a file."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
        return start + file.read(head_bytes(start) - HEAD_BYTES)


def _open_files(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """The upload, and an unnamed file beside it."""
    return path.open("rb", buffering=0), tempfile.TemporaryFile(buffering=0, dir=path.parent)


def _map(pcm: BinaryIO) -> Pcm:
    """The samples in a file: mapped, so that those of ten minutes are not 38 MB of memory."""
    if not os.fstat(pcm.fileno()).st_size:
        return np.zeros(0, np.float32)
    return np.asarray(np.memmap(pcm, np.float32, "c"))


def _duration_s(answer: bytes, max_s: float) -> float:
    """Raises what the child names, and InvalidAudio for what no honest child answers."""
    known = (AudioTooLong, FileTooLarge, StorageUnavailable)
    refusals: dict[str, type[PipelineError]] = {error.__name__: error for error in known}
    try:
        content = json.loads(answer)
        if "error" in content:
            raise refusals.get(content["error"], InvalidAudio)(str(content["message"]))
        duration_s = float(content["duration_s"])
        if 0 <= duration_s <= max_s + 1:
            return duration_s
    except (ValueError, TypeError, KeyError):
        pass
    raise InvalidAudio("the file cannot be decoded")


def _report(held: dict[Measure, bool]) -> None:
    """Logs which measures of the sandbox hold, and counts them."""
    for measure, holds in held.items():
        metrics.decoder_sandbox.labels(measure).set(holds)
    missing = [measure for measure, holds in held.items() if not holds]
    log = logger.warning if missing else logger.info
    log("decoder_sandbox", extra={"held": [one for one in held if held[one]], "missing": missing})


def _environment() -> dict[str, str]:
    """The environment of the process: where Python finds its modules, and no secrets."""
    known = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    kept = {name: os.environ[name] for name in known if name in os.environ}
    return {**kept, "PYTHONPATH": str(PROJECT_DIR), "OPENBLAS_NUM_THREADS": "1"}
