"""Audio of a live client, which is decoded, limited to a multiple of real time, paid and queued."""

import asyncio
from collections import deque
from typing import Literal, TypeAlias

from api.sockets.kernel import close_codes
from api.sockets.kernel.queue import BoundedQueue
from api.sockets.kernel.session import SocketSession
from configs.schema.transcription import ListeningLimits
from db.errors import DatabaseError
from db.webhooks import NewEvent
from models.audio import Pcm
from models.errors import EngineError
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.decode.decoder import AudioFormat, sniff
from pipelines.audio.decode.stream import LiveAudio, LiveEncoding
from pipelines.billing.audio_meter import AudioMeter
from pipelines.billing.billing import Billing
from pipelines.errors import InvalidAudio, public_error
from pipelines.stt.events import FailedUtterance
from pipelines.stt.formatting import separator_of

# Longest pause in reading from the client: pongs, which time out after 10 s, are not read either.
PUSH_BACK_S = 8.0
LATE = "the service cannot keep up with the audio"
MAGIC = (b"RIFF", b"OggS", b"fLaC", b"ID3", b"\x1a\x45\xdf\xa3")  # of containers; the last is WebM


class ReceivePacer:
    """Limits the audio received within `window_s` seconds to `max_speed` times real time. Pieces
    are counted in slots of one second."""

    def __init__(self, max_speed: float, window_s: float) -> None:
        self._allowed_s = max_speed * window_s
        self._window_s = window_s
        self._total_s = 0.0
        self._slots: deque[tuple[float, float]] = deque()  # start of a slot, its seconds of audio

    def allows(self, now: float, audio_s: float) -> bool:
        """Counts a piece of audio, and returns whether the limit is kept; times in seconds."""
        while self._slots and self._slots[0][0] <= now - self._window_s:
            self._total_s -= self._slots.popleft()[1]
        if self._slots and now - self._slots[-1][0] < 1:
            slot_start, before_s = self._slots.pop()
            self._slots.append((slot_start, before_s + audio_s))
        else:
            self._slots.append((now, audio_s))
        self._total_s += audio_s
        return self._total_s <= self._allowed_s


InputCommand: TypeAlias = tuple[str, ...] | Literal["commit", "clear"] | asyncio.Event
"""Languages of the audio that follows, "commit" to end a turn, "clear" to drop its audio, or an
event to set when the audio before it was processed."""


class AudioInbox(BoundedQueue[Pcm | InputCommand]):
    """Queue of audio and commands; only audio counts towards its size."""

    def __init__(self, limit_s: float) -> None:
        def samples(item: Pcm | InputCommand) -> int:
            return 0 if isinstance(item, (str, tuple, asyncio.Event)) else len(item)

        super().__init__(round(limit_s * STT_SAMPLE_RATE), samples)

    def put(self, item: Pcm | InputCommand) -> None:
        last = self._items[-1] if self._items else None
        changes_again = isinstance(item, tuple) and isinstance(last, tuple)
        clears_again = isinstance(item, str) and isinstance(last, str) and item == last == "clear"
        if changes_again or clears_again:
            self._items.pop()  # replaced, since no audio came in between
        super().put(item)


def container_of(data: bytes, encoding: LiveEncoding) -> AudioFormat | None:
    """Returns the container format of a session's first audio; None if it may be raw samples. A WAV
    header before 16-bit samples is allowed, since it only sounds like a click."""
    has_magic = data.startswith(MAGIC) or data[4:8] == b"ftyp"
    if not has_magic or (encoding == "linear" and data.startswith(b"RIFF")):
        return None
    try:
        return sniff(data)
    except InvalidAudio:
        return None


class AudioInput:
    """Takes the audio of one session, and puts its samples into `inbox`."""

    def __init__(self, session: SocketSession, billing: Billing, limits: ListeningLimits) -> None:
        self.inbox = AudioInbox(limits.backlog_s)
        self.meter = AudioMeter(billing, session.principal.workspace_id, session.payer)
        self._session = session
        self._limits = limits
        self._audio = LiveAudio()
        self._pace = ReceivePacer(limits.max_speed, limits.speed_window_s)
        self.texts: list[tuple[str, str]] = []  # texts of finals, and their languages
        self.failure: EngineError | None = None

    @property
    def received_s(self) -> float:
        return float(self._audio.received_s)

    async def accept(
        self,
        data: bytes,
        encoding: LiveEncoding,
        sample_rate: int,
        width: int = 2,
        channels: int = 1,
    ) -> None:
        """Takes audio with samples of `width` bytes, and waits while the inbox is full. Ends the
        session if the client is too fast, or the service cannot keep up. Raises InsufficientCredit;
        the audio is then dropped."""
        before_s = self._audio.received_s
        if not before_s and (container := container_of(data, encoding)):
            self._session.end(
                f"the audio is a file ({container}), and raw samples are expected here; send them "
                "without a container, or the file to POST /stt",
                close_codes.POLICY,
            )
            return
        pcm = self._audio.accept_bytes(data, encoding, sample_rate, width, channels)
        now = asyncio.get_running_loop().time()
        if not self._pace.allows(now, float(self._audio.received_s - before_s)):
            self._session.end(
                f"audio arrived over {self._limits.max_speed:g} times faster than real time, "
                f"averaged over {self._limits.speed_window_s:g} seconds",
                close_codes.POLICY,
            )
            return
        try:
            async with asyncio.timeout(PUSH_BACK_S):
                await self.meter.cover(round(self._audio.received_s * 1000))
        except (DatabaseError, TimeoutError):
            self._session.end("the credit cannot be looked up now", close_codes.OVERLOADED)
            return
        if not len(pcm):
            return
        try:
            async with asyncio.timeout(PUSH_BACK_S):
                await self.inbox.wait_for_room()
        except TimeoutError:
            self._session.end(LATE, close_codes.OVERLOADED)
            return
        self.inbox.put(pcm)

    async def wait_until_processed(self) -> bool:
        """Waits until the audio so far is processed. Ends the session and returns False if that
        takes too long."""
        processed = asyncio.Event()
        self.inbox.put(processed)
        try:
            async with asyncio.timeout(PUSH_BACK_S):
                await processed.wait()
        except TimeoutError:
            self._session.end(LATE, close_codes.OVERLOADED)
            return False
        return True

    def note_failure(self, failed: FailedUtterance) -> None:
        """Notes a failed utterance, which is not charged."""
        self.failure = failed.error
        self.meter.forgive(round(failed.duration_s * 1000))

    async def settle(self) -> None:
        """Charges the session once, and writes its webhook event if it has text or has failed."""
        operation = self.meter.operation
        events: list[NewEvent] = []
        if self.texts:
            language = self.texts[0][1]
            data = {
                "id": operation,
                "text": separator_of(language).join(text for text, _ in self.texts),
                "language": language,
                "duration": self.meter.heard_ms / 1000,
            }
            events.append(NewEvent("stt.completed", data))
        elif self.failure is not None:
            code, message = public_error(self.failure)
            data = {"id": operation, "error": code, "message": message}
            events.append(NewEvent("stt.failed", data))
        await self.meter.settle(*events)

    def finish(self, *, whole: bool) -> None:
        """Ends the audio; `whole` adds the samples that the resampler holds back."""
        if whole:
            self.inbox.put(self._audio.flush())
        self.inbox.close()
