"""Tool calls in the notation of Hermes and Qwen models, parsed incrementally.

<tool_call>
{"name": "get_weather", "arguments": {"city": "Rome"}}
</tool_call>
"""

import json
import re
from collections.abc import Iterable, Sequence
from secrets import token_hex
from typing import Any, Literal

MARK = "<tool_call>"
BEFORE_NAME = '\n{"name": "'
AFTER_NAME = '", "arguments": '
END = "}\n</tool_call>"

# Small models repeat what their template puts around the result of a call.
_ECHO = re.compile(r"</?tool_response>\n?")
_BEGINNINGS = (MARK, "<tool_response>\n", "</tool_response>\n")
_HEAD = re.compile(r'\s*\{"name": "([a-zA-Z0-9_-]{1,64})", "arguments": (?=\{)')
_MAX_HEAD = 120  # characters before the arguments

CallDelta = dict[str, Any]
"""A piece of a call in OpenAI's shape."""


class ToolTextReader:
    """Separates text from calls; arguments of the first call are streamed as they arrive.

    Later calls come when they are whole, and one that repeats an earlier call not at all: small
    models repeat themselves without end. `repeated` then says that generation should stop.
    """

    def __init__(self, *, json_or_calls: bool = False) -> None:
        """`json_or_calls`: an answer that does not begin with a call is JSON and has none."""
        self._reads_calls: bool | None = None if json_or_calls else True  # None: not known yet
        self.calls = 0  # that have come out, at least in part
        self.repeated = False
        self._made: list[tuple[str, str]] = []  # names and arguments of the calls
        self._waiting = ""  # what cannot be classified yet
        self._state: Literal["text", "head", "arguments", "end"] = "text"
        self._name = self._arguments = ""  # of the call that is being read
        self._depth = 0
        self._in_string = self._escaped = False

    @property
    def whole(self) -> int:
        """How many calls have come out whole."""
        return len(self._made)

    def feed(self, text: str) -> tuple[str, tuple[CallDelta, ...]]:
        """The text outside of calls, and OpenAI's deltas of the calls, in what came."""
        self._waiting += text
        if self._reads_calls is None and not MARK.startswith(self._waiting):
            self._reads_calls = self._waiting.startswith(MARK)
        if not self._reads_calls:
            return (self.finish() if self._reads_calls is False else ""), ()
        said: list[str] = []
        deltas: list[CallDelta] = []
        while self._step(said, deltas):
            pass
        return "".join(said), tuple(deltas)

    def finish(self) -> str:
        """What was held back and turned out to be text, at the end of the answer."""
        held = self._waiting if self._state == "text" else ""
        self._waiting = ""
        return _ECHO.sub("", held) if self._reads_calls else held

    def _step(self, said: list[str], deltas: list[CallDelta]) -> bool:
        """Whether something was consumed; the rest has to wait for more."""
        if self._state == "text":
            return self._read_text(said)
        if self._state == "head":
            return self._read_head(said, deltas)
        if self._state == "arguments":
            return self._read_arguments(deltas)
        at = self._waiting.find("</tool_call>")
        if at >= 0:
            self._waiting = self._waiting[at + len("</tool_call>") :].removeprefix("\n")
            self._state = "text"
        return at >= 0

    def _read_text(self, said: list[str]) -> bool:
        before, mark, after = self._waiting.partition(MARK)
        if mark:
            self._waiting, self._state = after, "head"
        else:
            kept = partial_suffix(before, _BEGINNINGS)
            before, self._waiting = before[: len(before) - kept], before[len(before) - kept :]
        before = _ECHO.sub("", before)
        if before and not (self.whole and before.isspace()):
            said.append(before)
        return bool(mark)

    def _read_head(self, said: list[str], deltas: list[CallDelta]) -> bool:
        head = _HEAD.match(self._waiting)
        if head is None:
            if len(self._waiting) > _MAX_HEAD:  # no call: a model without a grammar
                said.append(MARK)
                self._state = "text"
                return True
            return False
        self._waiting, self._state = self._waiting[head.end() :], "arguments"
        self._name, self._arguments = head[1], ""
        if not self._made:
            deltas.append(self._begun())
        return True

    def _read_arguments(self, deltas: list[CallDelta]) -> bool:
        end = self._end_of_arguments()
        piece, self._waiting = self._waiting[:end], self._waiting[end:]
        self._arguments += piece
        whole = not self._depth and bool(piece)
        if not self._made and piece:
            deltas.append({"index": 0, "function": {"arguments": piece}})
        if not whole:
            return False
        call = (self._name, self._arguments)
        if call in self._made:
            self.repeated = True
        else:
            if self._made:
                deltas.append(self._begun())
                index = self.calls - 1
                deltas.append({"index": index, "function": {"arguments": self._arguments}})
            self._made.append(call)
        self._state = "end"
        return True

    def _begun(self) -> CallDelta:
        """The first delta of a call."""
        self.calls += 1
        return {
            "index": self.calls - 1,
            "id": f"call_{token_hex(12)}",
            "type": "function",
            "function": {"name": self._name, "arguments": ""},
        }

    def _end_of_arguments(self) -> int:
        """How much of the buffer belongs to the arguments; counts its brackets."""
        for index, char in enumerate(self._waiting):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._in_string = False
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    return index + 1
        return len(self._waiting)


def joined_calls(pieces: Iterable[CallDelta]) -> tuple[CallDelta, ...]:
    """The deltas of consecutive pieces as those of one, at most one a call.

    The first of a call has its name, and all of them have arguments to be joined.
    """
    calls: dict[int, CallDelta] = {}
    for piece in pieces:
        before = calls.setdefault(piece["index"], piece)
        if before is not piece:
            function = before["function"]
            arguments = function["arguments"] + piece["function"].get("arguments", "")
            calls[piece["index"]] = {**before, "function": {**function, "arguments": arguments}}
    return tuple(calls.values())


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def partial_suffix(text: str, marks: Sequence[str]) -> int:
    """Length of the longest proper prefix of one of `marks` that ends the text."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    for length in range(longest, 0, -1):
        end = text[-length:]
        if any(mark != end and mark.startswith(end) for mark in marks):
            return length
    return 0
