"""A peer connection in the place of a WebSocket: messages by its data channel, audio by RTP. aiortc
and its libraries are loaded only for the first call, so import this module in a function."""

import asyncio
import logging
from contextlib import suppress

from aiortc import (
    RTCBundlePolicy,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.exceptions import InvalidStateError
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av import AudioFrame

from configs.settings import WebRtcSettings
from pipelines.audio.webrtc.ice import bind
from pipelines.audio.webrtc.loudspeaker import Loudspeaker
from pipelines.audio.webrtc.offers import MICROPHONE_CHANNELS, MICROPHONE_RATE, rewritten
from pipelines.errors import InvalidRequest, Overloaded

logger = logging.getLogger(__name__)

BYTES_PER_S = MICROPHONE_RATE * MICROPHONE_CHANNELS * 2
CHANNEL = "oai-events"
MAX_CHANNELS = 8
MAX_WAITING_BYTES = 2**21  # most bytes that the session has not taken yet
MAX_UNSENT_BYTES = 2**18
# Ends of turns are found by the time of the audio, so silence fills in for missing audio.
GAP_S = 0.3
MAX_GAP_S = 10.0  # longer than any wait for the end of a turn
CLOSING_S = 2.0


class Peer:
    """The service's end of a call."""

    def __init__(self, settings: WebRtcSettings) -> None:
        """Connects to nothing before `answer`."""
        self.loudspeaker = Loudspeaker()
        self.opened = asyncio.Event()  # set once the data channel is open, or the peer is lost
        self.lost = asyncio.Event()
        self.has_hung_up = False  # whether the client ended the connection in good order
        self._settings = settings
        self._channel: RTCDataChannel | None = None
        self._channels = 0
        self._inbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._sent = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        servers = [
            RTCIceServer(url, settings.username, settings.password) for url in settings.ice_servers
        ]
        self._connection = RTCPeerConnection(
            RTCConfiguration(iceServers=servers, bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
        )
        transceiver = self._connection.addTransceiver(self.loudspeaker)
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        transceiver.setCodecPreferences([c for c in codecs if c.mimeType == "audio/opus"])
        # aiortc holds four packets (80 ms) back for playback; recognition only needs them in order.
        # The names are private: a release without them keeps its default.
        jitter_buffer = getattr(transceiver.receiver, "_RTCRtpReceiver__jitter_buffer", None)
        if jitter_buffer is not None and hasattr(jitter_buffer, "_prefetch"):
            jitter_buffer._prefetch = 1
        self._ice = bind(self._connection, settings)
        self._connection.on("datachannel", self._open)
        self._connection.on("track", self._listen)
        self._connection.on("connectionstatechange", self._state_changed)

    async def answer(self, offer: str) -> str:
        """Returns the answer to an SDP offer. Raises InvalidRequest or Overloaded."""
        offer = rewritten(offer, keeps_candidates=bool(self._settings.ice_servers))
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        except Exception as error:  # aiortc has no class of its own for what it refuses
            raise InvalidRequest(f"sdp: the offer is invalid: {type(error).__name__}") from error
        sctp = self._connection.sctp
        assert sctp is not None  # `rewritten` requires a data channel
        # aiortc announces a receive window, and does not enforce it.
        self._ice.is_full = lambda: getattr(sctp, "_advertised_rwnd", 0) < 0
        await self._connection.setLocalDescription()
        answer: str = self._connection.localDescription.sdp
        if "a=candidate:" not in answer:
            raise Overloaded("no UDP port is free for another call")
        return answer

    async def receive(self) -> str | bytes | None:
        """Waits for the next message (str) or piece of audio; returns None once the peer is lost.
        Audio is int16 at MICROPHONE_RATE with MICROPHONE_CHANNELS."""
        item = await self._inbox.get()
        self._waiting_bytes -= len(item or "")
        return item

    async def send(self, text: str) -> bool:
        """Sends a message, and waits while the client takes no more. Returns False if the client
        accepts no message of that size. Raises ConnectionResetError."""
        channel = self._channel
        if channel is None or self.lost.is_set():
            raise ConnectionResetError
        try:
            channel.send(text)
        except InvalidStateError:
            raise ConnectionResetError from None
        except ValueError:
            return False
        while channel.bufferedAmount > MAX_UNSENT_BYTES and not self.lost.is_set():
            self._sent.clear()
            await self._sent.wait()
        return True

    async def close(self) -> None:
        """Closes the connection, after the messages that were sent. May be called again."""
        if self._closing is None:  # a task, since aiortc cannot close again if it was cancelled
            self._closing = asyncio.create_task(self._close(), name="close the call")
        await asyncio.shield(self._closing)

    def lose(self) -> None:
        """Ends the connection for the session; `close` then releases it."""
        if not self.lost.is_set():
            self.lost.set()
            self.opened.set()
            self._sent.set()
            self._inbox.put_nowait(None)

    async def _close(self) -> None:
        channel = self._channel
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                while channel is not None and channel.bufferedAmount and not self.lost.is_set():
                    await asyncio.sleep(0.02)
                if channel is not None and not self.lost.is_set():
                    await asyncio.sleep(0.1)  # for the client's acknowledgements
        self.lose()
        if self._listening is not None:
            self._listening.cancel()
        try:
            async with asyncio.timeout(CLOSING_S):
                await self._connection.close()
        except TimeoutError:
            pass
        except Exception:  # a failure to close must not keep the session
            logger.exception("call_not_closed")

    def _open(self, channel: RTCDataChannel) -> None:
        self._channels += 1
        if self._channels > MAX_CHANNELS:
            self.lose()
        elif channel.label == CHANNEL and self._channel is None:
            self._channel = channel
            channel.bufferedAmountLowThreshold = MAX_UNSENT_BYTES
            channel.on("bufferedamountlow", self._sent.set)
            channel.on("message", self._take)
            channel.on("close", self._hung_up)
            self.opened.set()

    def _take(self, message: str | bytes) -> None:
        """Queues a message. One sent as binary counts as text, which must be JSON."""
        text = message if isinstance(message, str) else message.decode(errors="replace")
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self.lose()
        self._put(text)

    def _put(self, item: str | bytes) -> None:
        self._waiting_bytes += len(item)
        self._inbox.put_nowait(item)

    def _listen(self, track: MediaStreamTrack) -> None:
        self._listening = asyncio.create_task(self._take_audio(track), name="listen to the call")

    async def _take_audio(self, track: MediaStreamTrack) -> None:
        """Queues the client's audio, and silence where none comes for a while. Drops what comes
        before the data channel is open: the track itself queues without bound."""
        gap_s = MAX_GAP_S  # no silence fills in before the first audio
        while not self.lost.is_set():
            try:
                async with asyncio.timeout(GAP_S):
                    frame = await track.recv()
            except TimeoutError:
                if gap_s < MAX_GAP_S:
                    gap_s += GAP_S
                    self._put(bytes(round(GAP_S * BYTES_PER_S)))
                continue
            except MediaStreamError:
                return
            if not self.opened.is_set():
                continue
            gap_s = 0.0
            if isinstance(frame, AudioFrame) and self._waiting_bytes < MAX_WAITING_BYTES:
                self._put(bytes(frame.planes[0])[: frame.samples * MICROPHONE_CHANNELS * 2])

    def _state_changed(self) -> None:
        if self._connection.connectionState == "failed":
            self.lose()
        elif self._connection.connectionState == "closed":
            self._hung_up()

    def _hung_up(self) -> None:
        self.has_hung_up = not self.lost.is_set()
        self.lose()
