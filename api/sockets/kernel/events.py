"""The messages that all socket protocols share."""

import time
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from api.http.bodies import parse_json
from api.http.errors import ApiError, first_fault
from api.sockets.kernel.conversation import ClientFault, Service
from configs.settings import BRAND


class Connecting(BaseModel):
    """The first message of the server."""

    connecting: Literal[True] = True
    message: str = f"Connecting to {BRAND}"
    timestamp: float


class Established(BaseModel):
    """The workspace of the session."""

    service: Service
    user_id: int
    credit_balance: float  # USD
    workspace: str


class ConnectionEstablished(BaseModel):
    """The second message of the server."""

    connection_established: Established


def now_s() -> float:
    """The timestamp of events: Unix time in seconds."""
    return round(time.time(), 3)


def parse_event(text: str) -> dict[str, Any]:
    """The JSON object of a text message, parsed as strictly as a body. Raises ClientFault."""
    try:
        value = parse_json(text.encode())
    except ApiError as error:
        raise ClientFault(error.message.replace("the body", "the message", 1)) from None
    if not isinstance(value, dict):
        raise ClientFault("the message must be a JSON object")
    return value


def fault_message(error: ValidationError, name: str = "", skip: int = 0) -> str:
    """Names the first field at fault and its limit.

    `name` is the object of the fields, `skip` leaves out leading parts of the field's path.
    """
    field, text = first_fault(error, skip)
    place = ".".join(filter(None, (name, field)))
    return f"{place}: {text}" if place else text
