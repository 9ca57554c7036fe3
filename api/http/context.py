"""What a request carries from the frame around the application to its route and its answer."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

from api.http.admission import Release, RoutePlace, Take, nothing
from api.http.turns import Turn
from configs.schema.platform import SlowClients
from pipelines.accounts.authentication import Principal
from pipelines.billing.operation import Operation
from pipelines.limits.limits import RateWindow

CLIENT_LEFT = "client_left"
"""Key of the scope's state under which the server of a WebSocket passes the field of that name."""
_CONTEXT = "context"


@dataclass(eq=False, repr=False, slots=True)
class RequestContext:
    """What one HTTP request or WebSocket has: its turn, its caller, and what it must give back.

    `RequestFrame` makes it, and calls `release` at the end of a request. A WebSocket uses `turn`
    and `client_left` alone; `SocketSession` has its principal and what it pays with.

    | field | set by | read by |
    |---|---|---|
    | `turn` | `RequestFrame` | all that works in the event loop, or waits for something else |
    | `slow_clients` | `RequestFrame` | `body_chunks` |
    | `client_left` | the server of a WebSocket | `SocketSession` |
    | `leave_unknown` | `RequestFrame` | `identify` |
    | `principal` | `GuardedRoute`, by `identify` | `PrincipalDep`, `StrictRoute`, tools of MCP |
    | `operation` | `identify`; `answer_once` names it | `OperationDep`, tools of MCP |
    | `rate_window` | `RequestLimits.count_request` | `RequestFrame`, for headers of the answer |
    | `place` | `GuardedRoute` | all that reads a body or fetches a recording, `RequestFrame` |
    | `upload_space` | `GuardedRoute` | `receive_form`, `receive_file`, `fetched` |
    | `take_memory` | the route of MCP | its tools |
    | `ignored` | `note_ignored` | `RequestFrame` and stored answers, for a header |

    Fields without a value until they are set, such as those of public routes, raise AttributeError.
    """

    turn: Turn
    slow_clients: SlowClients
    client_left: asyncio.Event | None = None
    """Set once the client has left, where the server of a WebSocket notices."""

    leave_unknown: Release = nothing
    """Ends the count of the request among those without a known key; may be called again."""

    principal: Principal = field(init=False)
    operation: Operation = field(init=False)
    """What pays for the request."""

    rate_window: RateWindow | None = None
    """The requests of its plan, this one included; None before they are counted."""

    place: RoutePlace = field(default_factory=RoutePlace)
    upload_space: Callable[[], AbstractAsyncContextManager[Take]] = field(init=False)
    """`BodySpace.of` the workspace, for files of the request."""

    take_memory: Take = field(init=False)
    """Takes bytes for what is made of a body, as `BodySpace.of` does."""

    ignored: dict[str, None] = field(default_factory=dict)
    """Names of fields that the service ignores, in order."""

    _releases: ExitStack = field(default_factory=ExitStack)

    def identify(self, principal: Principal) -> None:
        """Sets the caller and the operation that pays, once the key of the request is known."""
        self.principal = principal
        self.operation = Operation(principal.key_id)
        self.leave_unknown()

    def at_end(self, release: Release) -> None:
        """Has `release` called when the request ends."""
        self._releases.callback(release)

    def release(self) -> None:
        """Gives back what the request still holds: its turn, its place, and its counts."""
        self.turn.leave()
        self.place.leave()
        self.leave_unknown()
        self._releases.close()


def begin_context(scope: Scope, turn: Turn, slow_clients: SlowClients) -> RequestContext:
    """A new context, which the scope carries from now on."""
    state: dict[str, Any] = scope.setdefault("state", {})
    context = state[_CONTEXT] = RequestContext(turn, slow_clients, state.get(CLIENT_LEFT))
    return context


def context_of(connection: Mapping[str, Any]) -> RequestContext:
    """The context of a request, of a WebSocket, or of their scope."""
    context: RequestContext = connection["state"][_CONTEXT]
    return context
