"""The ids of responses and of their items, for each item reference: a turn of a saved chat.

`resp_`, and the same with `msg_`, `fc_` and `rs_` for a message, a call and reasoning: 32
hexadecimal digits of the chat, 16 of the turn; in those of calls also their number.
"""

import re
from uuid import UUID

from pipelines.chat.history import TurnName
from pipelines.chat.pipeline import Completion

_NAME = re.compile(r"(resp|msg|fc|rs)_([0-9a-f]{32})([0-9a-f]{16})(?:_([0-9]{1,3}))?")


def digits_of(completion: Completion) -> str:
    """The digits in the ids of an answer. Those of one that is not saved name nothing."""
    chat = completion.chat_id or UUID(bytes=bytes(16))
    return f"{chat.hex}{completion.turn}"


def named_turn(text: str) -> tuple[str, TurnName, int] | None:
    """What an id says: its prefix, its turn, and the number behind it, or else 0. None for what is
    no such id."""
    match = _NAME.fullmatch(text)
    return match and (match[1], (UUID(match[2]), match[3]), int(match[4] or 0))
