"""Assembles answers from their deltas."""

import json
from typing import Any

from models.llm.base import ChatMessage, GenerationDelta
from models.llm.tool_calls import CallDelta, add_call_piece


class AnswerAssembler:
    """Adds up deltas as OpenAI's clients do: calls by index, arguments concatenated."""

    def __init__(self) -> None:
        self.begun = False  # whether there was any delta
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, CallDelta] = {}

    def add(self, delta: GenerationDelta) -> None:
        self.begun = True
        self._text.append(delta.text)
        self._reasoning.append(delta.reasoning)
        for piece in delta.tool_calls:
            add_call_piece(self._calls, piece)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """In OpenAI's shape; the last one may be cut off when the answer was."""
        return [
            {"id": call["id"], "type": "function", "function": dict(call["function"])}
            for _, call in sorted(self._calls.items())
        ]

    def to_message(self) -> ChatMessage:
        """What a continued chat replays: the text and the calls that are whole."""
        whole = [call for call in self.tool_calls if _is_json(call["function"]["arguments"])]
        return ChatMessage("assistant", self.text, {"tool_calls": whole} if whole else {})


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
