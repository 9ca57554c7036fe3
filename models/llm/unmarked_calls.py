"""Finds tool calls that a model writes without the marker of its template.

Whatever its prompt says, Qwen2.5-Coder writes them as JSON: bare, in a code fence, or in the tag of
the tools' signatures (https://github.com/vllm-project/vllm/issues/32926). Other small models do so
now and then, and some call functions that do not exist.
"""

import re
from collections.abc import Collection
from itertools import product

_TAG = "<tools>"
_OPENINGS = ("", "```json", "```", _TAG)
_BRACKETS = ("", "[", "{")  # a list of calls, or doubled braces as in Qwen's own template
_HEADS = tuple(
    f'{opening}{bracket}{{"name":"' for opening, bracket in product(_OPENINGS, _BRACKETS)
)
_AFTER_NAME = (',"arguments":', ',"parameters":')
_MOST_HEAD = 400  # characters that identify a call; a longer head is not a call's
_NAME = re.compile(r"[\w.-]{0,64}")
_LINE = re.compile(r"^[ \t]*(?=\S)", re.M)


class UnmarkedCallFinder:
    """Filter that passes text on up to a line that begins with an unmarked call."""

    def __init__(self, names: Collection[str]) -> None:
        """`names` are those of the request's functions."""
        self.called: str | None = None  # function of the call, once there is one; "": unclear
        self._names = names
        self._waiting = ""  # a line, from its beginning, that may be a call
        self._begins_line = True

    def feed(self, text: str) -> str:
        """Returns the text that is certainly not part of a call."""
        text, self._waiting = self._waiting + text, ""
        if self.called is not None:
            return ""
        for line in _LINE.finditer(text):
            if line.start() == 0 and not self._begins_line:
                continue
            head = text[line.end() : line.end() + _MOST_HEAD]
            may_be_call = self._may_be_call("".join(head.split()))
            if may_be_call and (self.called is not None or len(head) < _MOST_HEAD):
                if self.called is None:
                    self._waiting = text[line.start() :]
                text = text[: line.start()]
                break
        line_break, last_line = text.rpartition("\n")[1:]
        self._begins_line = (self._begins_line or bool(line_break)) and not last_line.strip()
        return text

    def finish(self) -> str:
        """Returns the text held back, at the end of the answer."""
        held, self._waiting = self._waiting, ""
        return held

    def _may_be_call(self, compact: str) -> bool:
        """Whether a text without white space begins a call, or may do so when it goes on."""
        for head in _HEADS:
            if head.startswith(compact):
                return True
            if not compact.startswith(head):
                continue
            name, quote, after = compact[len(head) :].partition('"')
            if not quote:
                return _NAME.fullmatch(name) is not None
            # An object with only a name is a call even if no function has that name.
            keys = (*_AFTER_NAME, "}") if "_" in name else _AFTER_NAME
            if name in self._names or after.startswith(keys):
                self.called = name
                return True
            return any(key.startswith(after) for key in keys)
        for opening in _OPENINGS:
            name, bracket, _ = compact.removeprefix(opening).partition("(")
            if bracket and name in self._names:
                self.called = name
            elif not bracket and any(function.startswith(name) for function in self._names):
                return True  # may become a call in Python's form
        if self.called is None and compact.startswith(_TAG):  # such as a name alone
            named = filter(compact.removeprefix(_TAG).startswith, self._names)
            self.called = max(named, key=len, default="")
        return self.called is not None
