"""WebSocket close codes (RFC 6455); 4000 and above are this service's own."""

NORMAL = 1000
GOING_AWAY = 1001  # the service stops
LOST = 1006  # never sent: the client is gone without a close frame, or no longer reads
POLICY = 1008  # idle, flood, too many wrong messages
INTERNAL = 1011
RESTART = 1012  # this gateway shuts down; another one answers
OVERLOADED = 1013
KEY_REVOKED = 4401
CREDIT_SPENT = 4402
SESSION_TOO_LONG = 4408

_KNOWN = frozenset({*range(1000, 1015), CREDIT_SPENT, KEY_REVOKED, SESSION_TOO_LONG})


def shown(code: int) -> str:
    """The label in metrics; other codes share one, since a client may send any of thousands."""
    return str(code) if code in _KNOWN else "other"
