"""Assembles answers from their deltas."""

import json
from typing import Any

from models.llm.base import ChatMessage, GenerationDelta


class AnswerAssembler:
    """Adds up deltas as OpenAI's clients do: calls by index, arguments concatenated."""

    def __init__(self) -> None:
        self.begun = False  # whether there was any delta
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

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


def add_call_piece(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    """Adds a delta in OpenAI's shape to the call of its index, whose first piece has all else."""
    call = calls.get(piece["index"])
    if call is None:
        calls[piece["index"]] = {**piece, "function": dict(piece["function"])}
    else:
        call["function"]["arguments"] += piece["function"].get("arguments", "")


def joined_calls(
    earlier: tuple[dict[str, Any], ...], later: tuple[dict[str, Any], ...]
) -> tuple[dict[str, Any], ...]:
    """The deltas of two consecutive pieces as those of one, at most one a call."""
    calls: dict[int, dict[str, Any]] = {}
    for piece in (*earlier, *later):
        add_call_piece(calls, piece)
    return tuple(calls.values())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
