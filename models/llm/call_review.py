"""Review of the tool calls of a small model, by the conversation that they belong to.

Models with one or two billion parameters call a function as soon as its description fits. If the
user has not given the number of an order, they make one up (12345), and with two results at hand
they add up two numbers that occur nowhere. The client would run such a call.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from num2words import num2words

from models.llm.base import ChatMessage, GenerationRequest
from models.llm.tool_calls import CallDelta, named_calls

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[\s.,()/-]+(?=\d)")  # as in "555-123 4567"
# A number that identifies something: a shorter number may be an age, and a fraction a measurement.
_LONG_NUMBER = re.compile(r"(?<![.,\d])\d{3,}(?![.,]\d|%)")
_YEAR = re.compile(r"(?:19|20)\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d")
_OF_TIME = re.compile(r"time|date|hour|when|start|end|until", re.I)
_MOST_WORDS = 3  # words of an identifier, as in "Conference Room 101"; longer texts are free
_IDENTIFIER = re.compile(r"(?:^|_)(?:id|code|reference|account)$|_number$", re.I)
_BRACKETED = re.compile(r"<[^<>]*>|\{\{?[^{}]*\}?\}|x{3,}", re.I)
_NAMED = re.compile(r"(?:your|my|the|some)[_-](\w+)", re.I)
_LANGUAGES = ("en", "de", "fr", "es", "it", "pt")
_LEAST_SPELLED = 2  # number words that may spell an identifier


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
    conversation = _Conversation(request)
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

    def __init__(self, request: GenerationRequest) -> None:
        spoken = " ".join(message.content for message in request.messages)
        # Descriptions of tools, and their enumerations, also name values.
        self._text = f"{spoken} {json.dumps(request.tools, ensure_ascii=False)}".casefold()
        self._digits = _BETWEEN_DIGITS.sub("", self._text)
        self._numbers = {_plain(number) for number in _NUMBER.findall(self._text)}
        words = re.findall(r"[^\W\d_]+", spoken.casefold())
        self._is_spelled = sum(word in _number_words() for word in words) >= _LEAST_SPELLED

    def lacks(self, value: Any, parameter: str, schema: Mapping[str, Any]) -> bool:
        """Whether `value` identifies something that occurs nowhere."""
        if value == schema.get("default") or isinstance(value, bool):
            return False
        if isinstance(value, int):
            is_identifier = _IDENTIFIER.search(parameter) and _LONG_NUMBER.fullmatch(str(value))
            return bool(is_identifier) and self._lacks_digits(str(value))
        if not isinstance(value, str) or value.casefold() in self._text:
            return False
        if _is_placeholder(value, parameter):
            return True
        is_free = len(value.split()) > _MOST_WORDS or value.startswith("#")  # a colour
        if is_free or _MOMENT.match(value) or _OF_TIME.search(parameter):
            return False
        numbers = [number for number in _LONG_NUMBER.findall(value) if not _YEAR.fullmatch(number)]
        return any(map(self._lacks_digits, numbers))

    def _lacks_digits(self, number: str) -> bool:
        is_given = number in self._text or number in self._digits
        return not (is_given or self._is_spelled)

    def lacks_numbers(self, values: Sequence[Any]) -> bool:
        """Whether the values are several numbers, none of which occurs."""
        return len(values) > 1 and all(
            type(value) in (int, float) and _plain(str(value)) not in self._numbers
            for value in values
        )


def _is_placeholder(value: str, parameter: str) -> bool:
    """Whether `value` only stands for the value, such as "<order id>" or "your_order_id"."""
    if _BRACKETED.fullmatch(value) or value.casefold().replace(" ", "_") == parameter:
        return True
    named = _NAMED.fullmatch(value)
    words = set(parameter.casefold().split("_"))
    return named is not None and not words.isdisjoint(re.split("[_-]", named[1].casefold()))


@cache
def _number_words() -> frozenset[str]:
    """Words of numbers in the languages of small models, without the articles among them."""
    numbers = (*range(2, 20), *range(20, 100, 10), 100, 1000)
    words = (num2words(number, lang=code) for number in numbers for code in _LANGUAGES)
    return frozenset(words) | {"zero", "oh", "double"}


def _required(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the schemas of the required parameters that have one."""
    properties = schema.get("properties") or {}
    named = {name: properties.get(name) for name in schema.get("required") or ()}
    return {name: inner for name, inner in named.items() if isinstance(inner, dict)}


def _plain(number: str) -> str:
    """Returns the number without thousands separators, and without zeros at its end."""
    plain = number.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain
