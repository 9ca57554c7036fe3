"""State of a request, which middleware, routes and responses share."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

from api.http.admission import Release, RoutePlace, Take, release_nothing
from api.http.turns import Turn
from configs.schema.platform import SlowClients
from pipelines.accounts.authentication import Principal
from pipelines.billing.operation import Operation
from pipelines.limits.limits import RateWindow

CLIENT_LEFT = "client_left"
"""Key in the scope's state by which a WebSocket's server passes the event `client_left`."""
_CONTEXT = "context"


@dataclass(eq=False, repr=False, slots=True)
class RequestContext:
    """State of one HTTP request or WebSocket: its turn, its caller, and what it must release.

    `RequestFrame` creates it, and calls `release` when the request ends. A WebSocket uses only
    `turn` and `client_left`; its principal and its operation are in `SocketSession`.

    | field | set by | read by |
    |---|---|---|
    | `turn` | `RequestFrame` | code that works in the event loop, or waits for something else |
    | `slow_clients` | `RequestFrame` | `body_chunks` |
    | `client_left` | the server of a WebSocket | `SocketSession` |
    | `leave_unknown` | `RequestFrame` | `identify` |
    | `principal` | `GuardedRoute`, by `identify` | `PrincipalDep`, `StrictRoute`, tools of MCP |
    | `operation` | `identify`; `answer_once` names it | `OperationDep`, tools of MCP |
    | `rate_window` | `RequestLimits.count_request` | `RequestFrame`, for headers of the answer |
    | `place` | `GuardedRoute` | code that reads a body or fetches a recording, `RequestFrame` |
    | `upload_space` | `GuardedRoute` | `receive_form`, `receive_file`, `fetched` |
    | `take_memory` | the route of MCP | its tools |
    | `ignored` | `note_ignored` | `RequestFrame` and stored answers, for a header |

    Reading a field that was never set, such as `principal` on public routes, raises AttributeError.
    """

    turn: Turn
    slow_clients: SlowClients
    client_left: asyncio.Event | None = None
    """Set once the client has left; None if the server does not notice."""

    leave_unknown: Release = release_nothing
    """Stops counting the request as one without a known key; may be called twice."""

    principal: Principal = field(init=False)
    operation: Operation = field(init=False)
    """Pays for the request."""

    rate_window: RateWindow | None = None
    """Requests of the plan in this minute, this one included; None before it is counted."""

    place: RoutePlace = field(default_factory=RoutePlace)
    upload_space: Callable[[], AbstractAsyncContextManager[Take]] = field(init=False)
    """Opens the workspace's `BodySpace`, for uploaded files."""

    take_memory: Take = field(init=False)
    """Reserves memory (bytes) for results, as `BodySpace.of` does for bodies."""

    ignored: dict[str, None] = field(default_factory=dict)
    """Names of ignored fields, in order."""

    _releases: ExitStack = field(default_factory=ExitStack)

    def identify(self, principal: Principal) -> None:
        """Sets the caller and the operation that pays, once the request's key is known."""
        self.principal = principal
        self.operation = Operation(principal.key_id, is_free=principal.is_owner)
        self.leave_unknown()

    def at_end(self, release: Release) -> None:
        """Calls `release` when the request ends."""
        self._releases.callback(release)

    def release(self) -> None:
        """Releases what the request still holds: its turn, its place, and its counts."""
        self.turn.leave()
        self.place.leave()
        self.leave_unknown()
        self._releases.close()


def begin_context(scope: Scope, turn: Turn, slow_clients: SlowClients) -> RequestContext:
    """Creates a context and stores it in the scope."""
    state: dict[str, Any] = scope.setdefault("state", {})
    context = state[_CONTEXT] = RequestContext(turn, slow_clients, state.get(CLIENT_LEFT))
    return context


def context_of(connection: Mapping[str, Any]) -> RequestContext:
    """Returns the context of a request, a WebSocket, or their scope."""
    context: RequestContext = connection["state"][_CONTEXT]
    return context
