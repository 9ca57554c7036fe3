"""Texts that a tokenizer reads as control tokens, such as the mark that ends a turn. In a message
they are text: a user who writes them could otherwise end the turn and forge one of the system."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from models.llm.base import ChatMessage, GenerationRequest
from models.llm.tool_calls import readable_arguments

BREAK = "\u2060"  # word joiner: invisible, and no tokenizer finds the token around it


class ControlTexts:
    """Breaks the texts of a model's control tokens wherever a caller wrote them."""

    def __init__(self, texts: Iterable[str]) -> None:
        longest_first = sorted(filter(None, texts), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def broken_in(self, request: GenerationRequest) -> GenerationRequest:
        """Returns the request with broken control texts; a raw prompt may have control tokens."""
        if request.is_raw:
            return request
        messages = tuple(
            ChatMessage(
                message.role, self._broken(message.content), self._broken(_unescaped(message.extra))
            )
            for message in request.messages
        )
        begun = self._broken(request.begun)
        return replace(request, messages=messages, tools=self._broken(request.tools), begun=begun)

    def _broken(self, value: Any) -> Any:
        """The same JSON value with the control texts of its strings broken."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: match[0][0] + BREAK + match[0][1:], value)
        if isinstance(value, dict):
            return {self._broken(key): self._broken(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._broken, value))
        return value


def _unescaped(extra: dict[str, Any]) -> dict[str, Any]:
    """Writes the arguments of calls without the escapes of JSON, which templates undo: the encoders
    of Go and .NET write "<" as an escape."""
    if not extra.get("tool_calls"):
        return extra
    calls = [
        {**call, "function": {**function, "arguments": _rewritten(function["arguments"])}}
        for call in extra["tool_calls"]
        for function in [call["function"]]
    ]
    return {**extra, "tool_calls": calls}


def _rewritten(arguments: str) -> str:
    if "\\u" not in arguments:
        return arguments
    return json.dumps(json.loads(readable_arguments(arguments)), ensure_ascii=False)
