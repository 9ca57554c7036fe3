"""Restores characters that a client cut in two between messages: halves of UTF-16 pairs.

JSON can hold a half, but UTF-8 and pydantic cannot: a private-use character stands for it until
the next text completes it.
"""

import re

_OFFSET = 0x10F800 - 0xD800
_MARK = re.compile("[\U0010f800-\U0010ffff]")


def mark_halves(text: str) -> str:
    """Marks a second half at the beginning of a text and a first half at its end."""
    begin = 1 if "\udc00" <= text[:1] <= "\udfff" else 0
    end = len(text) - 1 if "\ud800" <= text[-1:] <= "\udbff" else len(text)
    return _moved(text[:begin]) + text[begin:end] + _moved(text[end:])


def _moved(half: str) -> str:
    return chr(ord(half) + _OFFSET) if half else ""


def join_halves(text: str) -> tuple[str, str]:
    """Joins the halves of a text with marks; returns it and the mark that waits for the next text.

    A half without its other becomes U+FFFD.
    """
    if text.isascii():
        return text, ""
    text = _MARK.sub(lambda mark: chr(ord(mark[0]) - _OFFSET), text)
    waiting = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    whole = text.removesuffix(waiting).encode("utf-16-le", "surrogatepass")
    return whole.decode("utf-16-le", "replace"), mark_halves(waiting)
