"""Clients that leave while their bytes are not read, of which an event loop does not tell."""

import asyncio
import select

LOST = "lost"  # key in the scope's state of a socket: an event that is set when its client has left
LOOK_S = 0.5  # between looks at a client that is not read
_HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)  # the former is Linux's


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has closed its side of the connection, maybe behind unread bytes."""
    if transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), _HANG_UP)
    return bool(poll.poll(0))
