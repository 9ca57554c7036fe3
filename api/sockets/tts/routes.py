"""`/ws/tts`: text in, speech out, both while they are made."""

from api.sockets.kernel.routes import socket_routes
from api.sockets.tts.conversation import TtsConversation

routes = socket_routes("/ws/tts", TtsConversation, "tts")
