"""WebSocket close codes (RFC 6455). Codes from 4000 on are this service's own."""

NORMAL = 1000
GOING_AWAY = 1001  # the service stops
LOST = 1006  # never sent: the client left without a close frame, or no longer reads
POLICY = 1008  # idle, flooding, or too many wrong messages
INTERNAL = 1011
RESTART = 1012  # this gateway shuts down; another one answers
OVERLOADED = 1013
KEY_REVOKED = 4401
CREDIT_SPENT = 4402
SESSION_TOO_LONG = 4408

_LABELLED = frozenset({*range(1000, 1015), CREDIT_SPENT, KEY_REVOKED, SESSION_TOO_LONG})


def label_of(code: int) -> str:
    """Returns the label in metrics; "other" for codes that only a client can have invented."""
    return str(code) if code in _LABELLED else "other"
