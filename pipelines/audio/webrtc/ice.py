"""The ICE connections of calls, bound to chosen addresses and ports, and bounded against floods.

aioice listens on any port of every address, checks every candidate of the peer, and queues every
datagram. Here a peer is answered at the address from which its own checks come (RFC 8445, 7.3)."""

import asyncio
import errno
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from aioice import Candidate, Connection
from aioice.candidate import candidate_foundation, candidate_priority
from aioice.ice import StunProtocol, server_reflexive_candidate
from aioice.stun import Message
from aiortc import RTCPeerConnection

from configs.settings import WebRtcSettings

STUN_S = 3.0  # a server that has not answered three requests by then is left out
DATAGRAMS_PER_S = 500.0
BURST = 1000.0  # datagrams: three client events of the largest size
SPEECH_PER_S = 110.0  # datagrams of 10 ms; those of a hostile client have up to 120 ms
SPEECH_BURST = 200.0
MAX_REMOTE = 16  # addresses from which a peer may send checks


@dataclass(slots=True)
class Allowance:
    """Datagrams that may come: `per_s`, and `burst` of them at once."""

    per_s: float
    burst: float
    left: float = 0.0
    counted_at: float = -math.inf

    def take(self, now: float) -> bool:
        """Takes one datagram, which has come at `now`; returns False if too many have come."""
        self.left = min(self.burst, self.left + (now - self.counted_at) * self.per_s)
        self.counted_at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class BoundConnection(Connection):
    """An ICE connection within `settings`."""

    settings = WebRtcSettings()
    is_full: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the peer has sent more than it may, so that its datagrams are dropped."""

    speech: Allowance
    others: Allowance

    async def get_component_candidates(
        self, component: int, addresses: list[str], timeout: int = 5
    ) -> list[Candidate]:
        """Listens on the chosen addresses; `addresses` are all those of the machine."""
        chosen = self.settings.addresses or [(address, address) for address in addresses]
        listening = [await self._listen(component, *address) for address in chosen]
        protocols = [protocol for protocol in listening if protocol is not None]
        candidates = [protocol.local_candidate for protocol in protocols]
        if self.stun_server is not None:
            queries = [
                asyncio.create_task(server_reflexive_candidate(protocol, self.stun_server))
                for protocol in protocols
                if ip_address(protocol.local_candidate.host).version == 4
            ]
            try:
                done, _ = await asyncio.wait(queries, timeout=STUN_S) if queries else ([], [])
            finally:
                for query in queries:
                    query.cancel()
            candidates += [query.result()[0] for query in done if query.exception() is None]
        return candidates + await super().get_component_candidates(component, [], timeout)

    def check_incoming(
        self, message: Message, addr: tuple[str, int], protocol: StunProtocol
    ) -> None:
        """Answers an authenticated check, unless the peer has too many addresses already."""
        addresses = {(candidate.host, candidate.port) for candidate in self.remote_candidates}
        if addr in addresses or len(addresses) < MAX_REMOTE:
            super().check_incoming(message, addr, protocol)

    def data_received(self, data: bytes, component: int) -> None:
        """Queues a datagram; drops it if too many come, before it is decrypted."""
        allowance = self.speech if _is_rtp(data) else self.others
        if allowance.take(asyncio.get_running_loop().time()) and not self.is_full():
            super().data_received(data, component)

    async def _listen(self, component: int, address: str, announced: str) -> StunProtocol | None:
        """Listens on a port of an address; returns None if that is not possible."""
        loop = asyncio.get_running_loop()
        first, last = self.settings.ports or (0, 0)
        for port in random.sample(range(first, last + 1), last - first + 1):
            try:
                transport, protocol = await loop.create_datagram_endpoint(
                    lambda: StunProtocol(self), local_addr=(address, port)
                )
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return None
            protocol.local_candidate = Candidate(
                foundation=candidate_foundation("host", "udp", announced),
                component=component,
                transport="udp",
                priority=candidate_priority(component, "host"),
                host=announced,
                port=transport.get_extra_info("sockname")[1],
                type="host",
            )
            self._protocols.append(protocol)  # at once, so that `close` finds it after a failure
            return protocol
        return None


def _is_rtp(data: bytes) -> bool:
    """Whether aiortc takes a datagram as RTP, and not as RTCP or DTLS."""
    return len(data) > 1 and 128 <= data[0] < 192 and not 192 <= data[1] <= 208


def bind(peer: RTCPeerConnection, settings: WebRtcSettings) -> BoundConnection:
    """Makes the only ICE connection of a new peer connection a BoundConnection. aiortc creates the
    connection itself, and takes no class for it."""
    (transceiver,) = peer.getTransceivers()
    connection = transceiver.receiver.transport.transport.iceGatherer._connection
    connection.__class__ = BoundConnection
    assert isinstance(connection, BoundConnection)
    connection.settings = settings
    connection.speech = Allowance(SPEECH_PER_S, SPEECH_BURST)
    connection.others = Allowance(DATAGRAMS_PER_S, BURST)
    return connection
