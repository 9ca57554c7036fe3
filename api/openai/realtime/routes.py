"""The socket of OpenAI's Realtime dialect."""

from starlette.websockets import WebSocket

from api.openai.realtime.conversation import RealtimeConversation
from api.sockets.kernel.routes import SocketRoute, socket_routes
from pipelines.accounts.authentication import Scope


def _scopes_of(websocket: WebSocket) -> tuple[Scope, ...]:
    if websocket.query_params.get("intent") == "transcription":
        return ("stt",)
    return ("stt", "tts", "chat")


routes = socket_routes(
    "/openai/v1/realtime",
    SocketRoute(
        "agent",
        RealtimeConversation,
        _scopes_of,
        greets=False,
        subprotocol="realtime",
        key_prefix="openai-insecure-api-key.",
    ),
)
