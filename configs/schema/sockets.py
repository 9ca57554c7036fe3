"""The shape of `configs/sockets.yaml`: limits of one WebSocket session."""

from pydantic import Field, PositiveFloat, PositiveInt

from configs.load import load_yaml
from configs.schema.strict import StrictModel


class SocketLimits(StrictModel):
    """Times are seconds."""

    idle_s: PositiveFloat
    session_s: PositiveFloat
    handshake_s: PositiveFloat
    send_timeout_s: PositiveFloat
    outbox_bytes: PositiveInt
    faults: PositiveInt
    flood_window_s: PositiveFloat
    messages_per_s: PositiveFloat
    recheck_s: PositiveFloat
    drain_s: float = Field(ge=0)
    stop_s: float = Field(ge=0)


def load_socket_limits() -> SocketLimits:
    """Reads `configs/sockets.yaml`."""
    return load_yaml(SocketLimits, "sockets")
