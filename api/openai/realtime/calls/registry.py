"""The calls over WebRTC of this process, and the import of what they need."""

import asyncio
import importlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.http.errors import ApiError
from api.sockets.kernel.session import SocketSession
from configs.settings import WebRtcSettings
from pipelines.accounts.authentication import Principal
from pipelines.tasks import TaskSet

if TYPE_CHECKING:
    from pipelines.audio.webrtc.peer import Peer

logger = logging.getLogger(__name__)

MODULE = "pipelines.audio.webrtc.peer"


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """A call of a principal, from its answer to its end."""

    id: str
    principal: Principal
    credential: str  # never logged
    peer: "Peer"
    session: SocketSession | None = None  # None until the client has connected

    def hang_up(self) -> None:
        """Ends the call, after the events that are queued."""
        if self.session is None:
            self.peer.lose()
        else:
            self.session.finish()


@dataclass(eq=False, repr=False)
class Calls:
    """The calls of this process, by id. Without `settings`, there are none."""

    settings: WebRtcSettings | None
    tasks: TaskSet = field(default_factory=lambda: TaskSet(_failed))
    _calls: dict[str, Call] = field(default_factory=dict)

    async def open_peer(self) -> "Peer":
        """Creates a peer connection. Raises ApiError(not_found) or ApiError(unavailable)."""
        if self.settings is None:
            raise ApiError("not_found", "this service has no calls over WebRTC")
        try:
            module = await asyncio.to_thread(importlib.import_module, MODULE)
        except Exception as error:  # a library is missing, or does not load
            logger.warning("webrtc_unavailable", extra={"error": str(error)})
            raise ApiError("unavailable", "calls over WebRTC are not available here") from error
        peer: Peer = module.Peer(self.settings)
        return peer

    def add(self, call: Call) -> None:
        self._calls[call.id] = call

    def discard(self, call: Call) -> None:
        self._calls.pop(call.id, None)

    def find(self, call_id: str, principal: Principal, credential: str) -> Call:
        """Returns a call of the principal's workspace. Client secrets and browser tokens find only
        calls that they began. Raises ApiError(not_found)."""
        is_of_browser = principal.secret is not None or principal.is_visitor
        call = self._calls.get(call_id)
        if (
            call is None
            or call.principal.workspace_id != principal.workspace_id
            or (is_of_browser and call.credential != credential)
        ):
            raise ApiError("not_found", "this gateway has no call with that id")
        return call


def _failed(task: asyncio.Task[None], error: BaseException) -> None:
    logger.error("call_failed", exc_info=error)
