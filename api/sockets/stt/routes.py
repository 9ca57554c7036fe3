"""WS /ws/stt."""

from starlette.routing import BaseRoute

from api.sockets.kernel.routes import socket_routes
from api.sockets.stt.conversation import SttConversation


def routes() -> list[BaseRoute]:
    """The socket and its plain GET."""
    return socket_routes("/ws/stt", SttConversation, "stt")
