"""Texts that a tokenizer reads as control tokens, such as the mark that ends a turn. In a message
they are text: a user who writes them could otherwise end the turn and forge one of the system."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from models.llm.base import ChatMessage, GenerationRequest

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
            ChatMessage(message.role, self._broken(message.content), self._broken(message.extra))
            for message in request.messages
        )
        return replace(request, messages=messages, tools=self._broken(request.tools))

    def _broken(self, value: Any) -> Any:
        """The same JSON value with the control texts of its strings broken."""
        if isinstance(value, str):
            return self._pattern.sub(lambda match: match[0][0] + BREAK + match[0][1:], value)
        if isinstance(value, dict):
            return {key: self._broken(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._broken, value))
        return value
