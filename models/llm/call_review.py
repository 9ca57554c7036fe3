"""Review of the tool calls of a small model, by the conversation that they belong to.

Models with one or two billion parameters call a function as soon as its description fits. If the
user has not given the number of an order, they make one up (12345), and with two results at hand
they add up two numbers that occur nowhere. The client would run such a call.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from models.llm.base import ChatMessage, GenerationRequest
from models.llm.tool_calls import CallDelta, named_calls

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LONG_NUMBER = re.compile(r"\d{3,}")  # identifies something; a shorter one may be a time or an age
_YEAR = re.compile(r"(?:19|20)\d\d")
_MOST_WORDS = 3  # of an identifier, such as "Conference Room 101"; longer texts are written freely
_IDENTIFIER = re.compile(r"(?:^|_)(?:id|code|reference|account)$|_number$", re.I)
_PLACEHOLDER = re.compile(r"<[^<>]*>|\{\{?[^{}]*\}?\}|x{3,}|(?:your|my|the|some)[_-]\w+", re.I)


@dataclass(frozen=True, slots=True)
class ReviewedCalls:
    kept: tuple[CallDelta, ...]  # calls for the client, numbered from 0
    missing: tuple[str, ...]  # parameters of the dropped calls, for which to ask the user


def review(request: GenerationRequest, calls: Sequence[CallDelta]) -> ReviewedCalls:
    """Judges the complete calls of the answer to `request`.

    Drops a call if a required argument identifies something and occurs nowhere in the conversation:
    a short text with three digits in a row, a number of a parameter such as `order_id`, or a
    placeholder ("your_order_id"). Once a function has returned a result, or beside another call,
    also drops a call with several numbers if none of them occurs.
    """
    conversation = _Conversation(request.messages)
    schemas = {
        tool["function"]["name"]: tool["function"].get("parameters") for tool in request.tools
    }
    calculates = bool(request.answered_calls()) or len(calls) > 1
    kept: list[CallDelta] = []
    missing: list[str] = []
    for call, (name, arguments) in zip(calls, named_calls({"tool_calls": calls}), strict=True):
        required = _required(schemas.get(name) or {})
        invented = [
            parameter
            for parameter in required.keys() & arguments.keys()
            if conversation.lacks(arguments[parameter], parameter, required[parameter])
        ]
        if invented:
            missing += invented
        elif not (calculates and conversation.lacks_numbers(list(arguments.values()))):
            kept.append({"index": len(kept), **call})
    return ReviewedCalls(kept=tuple(kept), missing=tuple(missing))


def asking_for(
    parameters: Sequence[str], messages: Sequence[ChatMessage]
) -> tuple[ChatMessage, ...]:
    """Returns `messages` with a request to ask the user for the values of `parameters`."""
    names = " and ".join(dict.fromkeys(name.replace("_", " ") for name in parameters))
    last = messages[-1]
    hint = (
        f"You need the {names} for this, and I have not given it. "
        f"Write one question that asks me for the {names}."
    )
    return (*messages[:-1], replace(last, content=f"{last.content}\n\n{hint}"))


class _Conversation:
    """Index of the texts and numbers of a conversation."""

    def __init__(self, messages: Iterable[ChatMessage]) -> None:
        self._text = " ".join(message.content for message in messages).casefold()
        self._numbers = {_plain(number) for number in _NUMBER.findall(self._text)}

    def lacks(self, value: Any, parameter: str, schema: Mapping[str, Any]) -> bool:
        """Whether `value` identifies something that occurs nowhere."""
        suggested = [*schema.get("enum", ()), schema.get("const"), schema.get("default")]
        if value in suggested or isinstance(value, bool):
            return False
        if isinstance(value, int):
            is_identifier = _IDENTIFIER.search(parameter) and _LONG_NUMBER.fullmatch(str(value))
            return bool(is_identifier) and str(value) not in self._text
        if not isinstance(value, str) or value.casefold() in self._text:
            return False
        if _PLACEHOLDER.fullmatch(value) or value.casefold().replace(" ", "_") == parameter:
            return True
        if len(value.split()) > _MOST_WORDS or value.startswith("#"):  # a colour
            return False
        numbers = [number for number in _LONG_NUMBER.findall(value) if not _YEAR.fullmatch(number)]
        return any(number not in self._text for number in numbers)

    def lacks_numbers(self, values: Sequence[Any]) -> bool:
        """Whether the values are several numbers, none of which occurs."""
        return len(values) > 1 and all(
            type(value) in (int, float) and _plain(str(value)) not in self._numbers
            for value in values
        )


def _required(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the schemas of the required parameters that have one."""
    properties = schema.get("properties") or {}
    named = {name: properties.get(name) for name in schema.get("required") or ()}
    return {name: inner for name, inner in named.items() if isinstance(inner, dict)}


def _plain(number: str) -> str:
    """Returns the number without thousands separators, and without zeros at its end."""
    plain = number.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
