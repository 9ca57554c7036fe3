"""`/ws/stt`: audio in, text out, both while they are made."""

from api.sockets.kernel.routes import socket_routes
from api.sockets.stt.conversation import SttConversation

routes = socket_routes("/ws/stt", SttConversation, "stt")
