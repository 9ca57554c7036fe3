"""Tool calls in the notation of Hermes and Qwen models, parsed incrementally.

<tool_call>
{"name": "get_weather", "arguments": {"city": "Rome"}}
</tool_call>
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_hex
from typing import Any, Literal

MARK = "<tool_call>"
BEFORE_NAME = '\n{"name": "'
AFTER_NAME = '", "arguments": '
END = "}\n</tool_call>"

# Small models repeat the tags that their template puts around the result of a call.
_ECHO = re.compile(r"</?tool_response>\n?")
_BEGINNINGS = (MARK, "<tool_response>\n", "</tool_response>\n")
_HEAD = re.compile(r'\s*\{"name": "([a-zA-Z0-9_-]{1,64})", "arguments": (?=\{)')
_MAX_HEAD = 120  # characters before the arguments
MOST_DEPTH = 64  # nesting of arguments, as of a body

CallDelta = dict[str, Any]  # a delta of a tool call, in OpenAI's form


class ToolTextReader:
    """Parser that separates text from tool calls; streams the arguments of the first call. Later
    calls are returned when they are complete, and a repeated call is dropped, since small models
    repeat calls endlessly: `repeated` is then set and generation should stop."""

    def __init__(self, *, json_or_calls: bool = False) -> None:
        """`json_or_calls`: an answer that does not begin with a call is JSON without calls."""
        self._reads_calls: bool | None = None if json_or_calls else True  # None until decided
        self.calls = 0  # calls that were returned, at least in part
        self.repeated = False
        self._known_calls: list[tuple[str, str]] = []  # names and arguments of the calls
        self._waiting = ""  # text that cannot be classified yet
        self._state: Literal["text", "head", "arguments", "end"] = "text"
        self._name = self._arguments = ""  # of the call being read
        self._depth = 0
        self._in_string = self._escaped = False

    @property
    def whole(self) -> int:
        """Number of complete calls."""
        return len(self._known_calls)

    def feed(self, text: str) -> tuple[str, tuple[CallDelta, ...]]:
        """Parses text; returns the text outside of calls, and OpenAI's deltas of the calls."""
        self._waiting += text
        if self._reads_calls is None and not MARK.startswith(self._waiting):
            self._reads_calls = self._waiting.startswith(MARK)
        if not self._reads_calls:
            return (self.finish() if self._reads_calls is False else ""), ()
        texts: list[str] = []
        deltas: list[CallDelta] = []
        while self._step(texts, deltas):
            pass
        return "".join(texts), tuple(deltas)

    def finish(self) -> str:
        """Returns the held text that is not a tool call, at the end of the answer."""
        held = self._waiting if self._state == "text" else ""
        self._waiting = ""
        return _ECHO.sub("", held) if self._reads_calls else held

    def _step(self, texts: list[str], deltas: list[CallDelta]) -> bool:
        """Whether something was consumed; otherwise more input is needed."""
        if self._state == "text":
            return self._read_text(texts)
        if self._state == "head":
            return self._read_head(texts, deltas)
        if self._state == "arguments":
            return self._read_arguments(deltas)
        at = self._waiting.find("</tool_call>")
        if at >= 0:
            self._waiting = self._waiting[at + len("</tool_call>") :].removeprefix("\n")
            self._state = "text"
        return at >= 0

    def _read_text(self, texts: list[str]) -> bool:
        before, mark, after = self._waiting.partition(MARK)
        if mark:
            self._waiting, self._state = after, "head"
        else:
            kept = partial_suffix(before, _BEGINNINGS)
            before, self._waiting = before[: len(before) - kept], before[len(before) - kept :]
        before = _ECHO.sub("", before)
        if before and not (self.whole and before.isspace()):
            texts.append(before)
        return bool(mark)

    def _read_head(self, texts: list[str], deltas: list[CallDelta]) -> bool:
        head = _HEAD.match(self._waiting)
        if head is None:
            if len(self._waiting) > _MAX_HEAD:  # an invalid call of a model without a grammar
                texts.append(MARK)
                self._state = "text"
                return True
            return False
        self._waiting, self._state = self._waiting[head.end() :], "arguments"
        self._name, self._arguments = head[1], ""
        if not self._known_calls:
            deltas.append(self._begun())
        return True

    def _read_arguments(self, deltas: list[CallDelta]) -> bool:
        end = self._end_of_arguments()
        piece, self._waiting = self._waiting[:end], self._waiting[end:]
        self._arguments += piece
        whole = not self._depth and bool(piece)
        if not self._known_calls and piece:
            deltas.append({"index": 0, "function": {"arguments": piece}})
        if not whole:
            return False
        call = (self._name, self._arguments)
        if call in self._known_calls:
            self.repeated = True
        else:
            if self._known_calls:
                deltas.append(self._begun())
                index = self.calls - 1
                deltas.append({"index": index, "function": {"arguments": self._arguments}})
            self._known_calls.append(call)
        self._state = "end"
        return True

    def _begun(self) -> CallDelta:
        """Begins a call; returns its first delta."""
        self.calls += 1
        return {
            "index": self.calls - 1,
            "id": f"call_{token_hex(12)}",
            "type": "function",
            "function": {"name": self._name, "arguments": ""},
        }

    def _end_of_arguments(self) -> int:
        """Length of the arguments in the buffer, by counting brackets."""
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
    """Joins the deltas of consecutive pieces into one for each call, with all its arguments."""
    calls: dict[int, CallDelta] = {}
    for piece in pieces:
        before = calls.setdefault(piece["index"], piece)
        if before is not piece:
            function = before["function"]
            arguments = function["arguments"] + piece["function"].get("arguments", "")
            calls[piece["index"]] = {**before, "function": {**function, "arguments": arguments}}
    return tuple(calls.values())


def call_arguments(text: str) -> str | None:
    """Return the arguments of a call as each engine and template reads them: an object as JSON.
    Blank text and `null` become `{}`, since models write them for a function without parameters.
    Returns None for anything else, at which templates and llama.cpp's JSON parser fail: arguments
    that were cut off, NaN, a number beyond a double, or a lone surrogate."""
    if text.strip() in ("", "null"):
        return "{}"
    try:
        value = json.loads(text, parse_constant=float, parse_int=float)
        if not isinstance(value, dict):
            return None
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return text if _depth(value) <= MOST_DEPTH else None
    except (ValueError, RecursionError):
        return None


def readable_arguments(text: str) -> str:
    """Returns valid arguments for a call that can no longer be refused; wraps any other text."""
    return call_arguments(text) or json.dumps({"arguments": text}, ensure_ascii=False)


def named_calls(message: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and arguments of the calls in a message of OpenAI's form."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [(call["name"], json.loads(readable_arguments(call["arguments"]))) for call in functions]


def _depth(value: Any) -> int:
    """Return how deeply objects and arrays are nested."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def partial_suffix(text: str, marks: Sequence[str]) -> int:
    """Length of the longest proper prefix of one of `marks` at the end of the text."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    for length in range(longest, 0, -1):
        end = text[-length:]
        if any(mark != end and mark.startswith(end) for mark in marks):
            return length
    return 0
