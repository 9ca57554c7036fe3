"""WS /ws/stt."""

from starlette.routing import BaseRoute

from api.sockets.routes import socket_routes
from api.sockets.stt_conversation import SttConversation


def routes() -> list[BaseRoute]:
    """The socket and its plain GET."""
    return socket_routes("/ws/stt", SttConversation, "stt")
