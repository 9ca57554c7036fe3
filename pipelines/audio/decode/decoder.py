"""Decodes uploads to pcm in worker processes, which may crash without harm to the service.

The first bytes of a file determine its format; names and media types are hints only.
"""

import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from configs.settings import PROJECT_DIR
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from pipelines import errors
from pipelines.errors import DecoderBusy, InvalidAudio, PipelineError
from telemetry import metrics

WORKER_MODULE = "pipelines.audio.decode.worker"
MAX_DURATION_S = 600.0
JOB_TIMEOUT_S = 30.0
MAX_WAITING = 32  # uploads; more get DecoderBusy

AudioFormat = Literal["mp3", "wav", "flac", "ogg", "m4a", "webm"]

HEAD_BYTES = 64  # what `sniff` looks at

# Major brands of MP4 files that may hold audio only; pictures (heic, avif) have their own.
_MP4_BRANDS = frozenset(
    "M4A |M4B |M4P |F4A |mp41|mp42|isom|iso2|iso3|iso4|iso5|iso6|dash|qt  ".split("|")
)
_EBML = b"\x1a\x45\xdf\xa3"
_REFUSAL = "the file is not MP3, WAV, FLAC, OGG, M4A or WebM audio"


@dataclass(frozen=True, slots=True)
class DecodedAudio:
    """The audio of an upload."""

    pcm: Pcm
    sample_rate: int  # Hz
    duration_s: float  # counted while decoding, not read from a header
    format: AudioFormat


class WorkerDied(Exception):
    """The worker process ended without an answer."""


class AudioDecoder(AbstractAsyncContextManager["AudioDecoder"]):
    """A pool of decoder processes, started by the first upload that needs them."""

    def __init__(
        self,
        workers: int = 1,
        max_waiting: int = MAX_WAITING,
        timeout_s: float = JOB_TIMEOUT_S,
    ) -> None:
        """`timeout_s` is for one file and the start of its process; CPU time has its own limit."""
        self._idle: asyncio.LifoQueue[DecoderProcess] = asyncio.LifoQueue()
        self._workers = [DecoderProcess(timeout_s) for _ in range(workers)]
        for worker in self._workers:
            self._idle.put_nowait(worker)
        self._waiting = 0
        self._max_waiting = max_waiting

    async def start(self) -> None:
        """Starts the processes ahead of the first upload; calling it is optional."""
        await asyncio.gather(*(worker.start() for worker in self._workers))

    async def close(self) -> None:
        """Ends the processes."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def decode(
        self,
        path: Path,
        *,
        sample_rate: int = STT_SAMPLE_RATE,
        max_duration_s: float = MAX_DURATION_S,
    ) -> DecodedAudio:
        """Mono pcm of a file of a temporary directory, which also gets a second file meanwhile.

        Raises InvalidAudio, AudioTooLong, FileTooLarge or DecoderBusy. Cancelling ends the work.
        """
        try:
            with metrics.decode_seconds.time():
                return await self._decode(path, sample_rate, max_duration_s)
        except PipelineError as error:
            metrics.decode_failures.labels(error.code).inc()
            raise

    async def _decode(self, path: Path, sample_rate: int, max_duration_s: float) -> DecodedAudio:
        audio_format = sniff(await asyncio.to_thread(_head, path))
        if self._waiting >= self._max_waiting:
            raise DecoderBusy("too many files wait to be decoded")
        self._waiting += 1
        try:
            with metrics.decodes_waiting.track_inprogress():
                worker = await self._idle.get()
        finally:
            self._waiting -= 1
        target = path.with_name(f"{path.name}.f32")
        try:
            job: dict[str, str | float] = {
                "source": str(path),
                "format": audio_format,
                "target": str(target),
                "sample_rate": sample_rate,
                "max_seconds": max_duration_s,
            }
            try:
                answer = await worker.run(job)
            except WorkerDied:  # perhaps not because of this file: it may have died before
                answer = await worker.run(job)
            if "error" in answer:
                raise _error(str(answer["error"]), str(answer["message"]))
            pcm = await asyncio.to_thread(np.fromfile, target, np.float32)
        except (WorkerDied, TimeoutError) as error:
            raise InvalidAudio("the file cannot be decoded within its limits") from error
        finally:
            self._idle.put_nowait(worker)
            target.unlink(missing_ok=True)
        return DecodedAudio(pcm, sample_rate, float(str(answer["duration_s"])), audio_format)


class DecoderProcess:
    """One decoder process; after a death the next job starts another."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()  # an early start and the first job may coincide

    async def start(self) -> asyncio.subprocess.Process:
        """The running process."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    WORKER_MODULE,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    cwd=PROJECT_DIR,
                    env=_environment(),
                    start_new_session=True,  # it gets no Ctrl-C of the service's terminal
                )
            return self._process

    async def run(self, job: dict[str, str | float]) -> dict[str, object]:
        """Sends one job and waits for its answer. Raises WorkerDied or TimeoutError."""
        answered = False
        try:
            process = await self.start()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(job).encode() + b"\n")
            async with asyncio.timeout(self._timeout_s):
                await process.stdin.drain()
                line = await process.stdout.readline()
            answer: dict[str, object] = json.loads(line)
            answered = True
            return answer
        except (ConnectionError, ValueError) as error:
            raise WorkerDied(type(error).__name__) from error
        finally:
            if not answered:  # also when cancelled: its answer would be read by the next job
                await asyncio.shield(self.stop())

    async def stop(self) -> None:
        """Kills the process, if there is one, and waits for its end."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


def sniff(head: bytes) -> AudioFormat:
    """The format of a file that starts with `head`. Raises InvalidAudio for every other format."""
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
    if head[:3] == b"ID3" or _is_mp3_frame(head):
        return "mp3"
    raise InvalidAudio(_REFUSAL if head else "the file is empty")


def _is_mp3_frame(head: bytes) -> bool:
    """Whether `head` opens with the header of an MPEG audio frame of layer III."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer == 1 and bitrate not in (0, 15) and rate != 3


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _error(name: str, message: str) -> PipelineError:
    kind = getattr(errors, name, InvalidAudio)
    return kind(message) if issubclass(kind, PipelineError) else InvalidAudio(message)


def _environment() -> dict[str, str]:
    """The environment of a worker: where Python finds its modules, and no secrets."""
    known = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    kept = {name: os.environ[name] for name in known if name in os.environ}
    return {**kept, "PYTHONPATH": str(PROJECT_DIR), "OPENBLAS_NUM_THREADS": "1"}
