"""The socket of OpenAI's Realtime dialect."""

from starlette.websockets import WebSocket

from api.http.errors import ApiError
from api.openai.realtime.client_secrets import SCOPES, kind_of
from api.openai.realtime.conversation import RealtimeConversation
from api.openai.realtime.session_object import MAX_MODEL_NAME
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SecretSession
from pipelines.accounts.authentication import Scope


def _scopes_of(websocket: WebSocket, secret_session: SecretSession | None) -> tuple[Scope, ...]:
    model = websocket.query_params.get("model", "")
    if len(model) > MAX_MODEL_NAME:
        message = f"model: at most {MAX_MODEL_NAME} characters"
        raise ApiError("validation_error", message, param="model")
    return SCOPES[kind_of(websocket.query_params, secret_session)]


routes = socket_routes(
    "/openai/v1/realtime",
    SocketRoute(
        "agent",
        RealtimeConversation,
        SCOPES["realtime"],
        visitors=True,
        scopes_of=_scopes_of,
        greets=False,
        subprotocol="realtime",
        key_prefix="openai-insecure-api-key.",
        takes_secrets=True,
    ),
)
