"""The sockets of dialects: their keys, and options that are checked before the upgrade."""

from collections.abc import Callable
from typing import Literal

from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket

from api.services import Services
from api.sockets.kernel.conversation import Conversation
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from pipelines.accounts.authentication import Scope


def dialect_socket(
    path: str,
    service: Literal["stt", "tts"],
    conversation: Callable[[SocketSession, Services], Conversation],
    check: Callable[[QueryParams], object],
    schemes: tuple[str, ...],
    key_in: Callable[[str], str] | None = None,
    key_queries: tuple[str, ...] = (),
) -> list[BaseRoute]:
    """The key follows one of the `schemes` in the header or among the subprotocols, is in one of
    the parameters `key_queries`, or is what `key_in` finds in the first message. `check` raises
    ApiError, which is the answer to the handshake."""

    def scopes(websocket: WebSocket, _: object) -> tuple[Scope, ...]:
        check(websocket.query_params)
        return (service,)

    return socket_routes(
        path,
        SocketRoute(
            service,
            conversation,
            scopes,
            schemes=schemes,
            key_queries=("apiKey", *key_queries),
            greets=False,
            has_get=False,
            key_after=schemes,
            key_in=key_in,
        ),
    )
