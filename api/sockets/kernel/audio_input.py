"""Audio from a live client: decoded, limited to a multiple of real time, paid for, and queued."""

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
from pipelines.stt.events import FailedUtterance, LiveTranscript
from pipelines.stt.formatting import separator_of

# Reading stops for at most so long: pongs are not read either, and time out at 10.
PUSH_BACK_S = 8.0
MARKS = (b"RIFF", b"OggS", b"fLaC", b"ID3", b"\x1a\x45\xdf\xa3")  # of containers; the last is WebM


class ReceivePacer:
    """Rate limit: seconds of audio within the last `window_s` seconds, in slots of one second."""

    def __init__(self, max_speed: float, window_s: float) -> None:
        self._allowed_s = max_speed * window_s
        self._window_s = window_s
        self._total_s = 0.0
        self._slots: deque[tuple[float, float]] = deque()  # when it began, seconds of audio

    def allows(self, now: float, audio_s: float) -> bool:
        """Counts a piece of audio; False when it was too much."""
        while self._slots and self._slots[0][0] <= now - self._window_s:
            self._total_s -= self._slots.popleft()[1]
        if self._slots and now - self._slots[-1][0] < 1:  # one slot a second
            began, before_s = self._slots.pop()
            self._slots.append((began, before_s + audio_s))
        else:
            self._slots.append((now, audio_s))
        self._total_s += audio_s
        return self._total_s <= self._allowed_s


InputCommand: TypeAlias = tuple[str, ...] | Literal["commit", "clear"]
"""Languages to use for what follows; or the end of a turn, or that it is forgotten."""


class AudioInbox(BoundedQueue[Pcm | InputCommand]):
    """Audio and commands, in order."""

    def __init__(self, limit_s: float) -> None:
        def samples(item: Pcm | InputCommand) -> int:
            return 0 if isinstance(item, (str, tuple)) else len(item)

        super().__init__(round(limit_s * STT_SAMPLE_RATE), samples)

    def put(self, item: Pcm | InputCommand) -> None:
        last = self._items[-1] if self._items else None
        changes_again = isinstance(item, tuple) and isinstance(last, tuple)
        clears_again = isinstance(item, str) and isinstance(last, str) and item == last == "clear"
        if changes_again or clears_again:
            self._items.pop()  # no audio came between
        super().put(item)


def container_of(data: bytes, encoding: LiveEncoding) -> AudioFormat | None:
    """The container that the first audio of a session begins with, if it is surely none of the
    samples. A header of WAV before 16-bit samples is no more than a click."""
    is_marked = data.startswith(MARKS) or data[4:8] == b"ftyp"
    if not is_marked or (encoding == "linear" and data.startswith(b"RIFF")):
        return None
    try:
        return sniff(data)
    except InvalidAudio:
        return None


class AudioInput:
    """The audio of one session, from its bytes to `inbox`."""

    def __init__(self, session: SocketSession, billing: Billing, limits: ListeningLimits) -> None:
        self.inbox = AudioInbox(limits.backlog_s)
        self.meter = AudioMeter(billing, session.principal.workspace_id, session.payer)
        self._session = session
        self._limits = limits
        self._audio = LiveAudio()
        self._pace = ReceivePacer(limits.max_speed, limits.speed_window_s)
        self.texts: list[tuple[str, str]] = []  # finals, each with its language
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
        """Waits while the inbox is full. Ends the session of a client that is too fast, and when
        the service cannot keep up. Raises InsufficientCredit: then the audio is dropped."""
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
            self._session.end("the service cannot keep up with the audio", close_codes.OVERLOADED)
            return
        self.inbox.put(pcm)

    def note_heard(self, final: LiveTranscript) -> None:
        """For the webhook event of the session."""
        if final.text:
            self.texts.append((final.text, final.language))

    def note_failed(self, failed: FailedUtterance) -> None:
        """It is not charged."""
        self.failure = failed.error
        self.meter.forgive(round(failed.duration_s * 1000))

    async def settle(self) -> None:
        """Charges, and writes the webhook event of the whole session, once; none when nothing was
        said in it."""
        about = {"id": self.meter.operation}
        events: list[NewEvent] = []
        if self.texts:
            language = self.texts[0][1]
            text = separator_of(language).join(text for text, _ in self.texts)
            said = {"text": text, "language": language, "duration": self.meter.heard_ms / 1000}
            events.append(NewEvent("stt.completed", {**about, **said}))
        elif self.failure is not None:
            code, message = public_error(self.failure)
            events.append(NewEvent("stt.failed", {**about, "error": code, "message": message}))
        await self.meter.settle(*events)

    def finish(self, *, whole: bool) -> None:
        """The end of the audio; with what the resampler holds back only when `whole`."""
        if whole:
            self.inbox.put(self._audio.flush())
        self.inbox.close()
