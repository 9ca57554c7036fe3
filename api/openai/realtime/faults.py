"""Errors about a client's events, with the codes, messages and paths of OpenAI's server."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from api.http.errors import first_fault, to_api_error
from api.openai.realtime.server_events import NAMES, ErrorEvent, frame_of
from api.sockets.kernel.conversation import ClientFault
from api.sockets.tts.events import excerpt
from pipelines.errors import InsufficientCredit, InvalidRequest

NO_CREDIT = "insufficient_quota"  # both the code and the type of OpenAI's error
MISSING = "missing_required_parameter"
_FIELD = re.compile(r"([a-z_.]+): ")  # matches the start of a message about one field
MAX_PARAM = 200  # characters: a key of `metadata` may be any text


class RealtimeFault(ClientFault):
    """An error that the client gets as an `error` event; the session continues. `param` is the path
    of the field at fault, `event_id` the id of the client's event."""

    def __init__(
        self,
        code: str | None,
        message: str,
        *,
        param: str | None = None,
        event_id: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        body = {"type": kind, "code": code, "message": message, "param": param}
        self.error = ErrorEvent(error={**body, "event_id": event_id})
        super().__init__(message, frame_of(self.error))
        self.code = code
        self.param = param
        self.event_id = event_id
        self.kind = kind

    def about(self, event_id: str | None) -> "RealtimeFault":
        """Returns a copy of the fault, about the client's event of that id."""
        return RealtimeFault(
            self.code, self.message, param=self.param, event_id=event_id, kind=self.kind
        )


def as_fault(error: Exception) -> RealtimeFault:
    """Converts an error of any layer."""
    if isinstance(error, RealtimeFault):
        return error
    if isinstance(error, InvalidRequest):
        field = _FIELD.match(str(error))
        return RealtimeFault("invalid_value", str(error), param=field and field[1])
    if isinstance(error, InsufficientCredit):
        return RealtimeFault(NO_CREDIT, str(error), kind=NO_CREDIT)
    api_error = to_api_error(error)
    kind = "invalid_request_error" if api_error.status < 500 else "server_error"
    return RealtimeFault(api_error.code, api_error.message, param=api_error.param, kind=kind)


def wrong(code: str, message: str, at: str = "") -> PydanticCustomError:
    """Returns a validator's error about its value, or about the value at the path `at` in it."""
    return PydanticCustomError(code, "{message}", {"message": message, "at": at})


def wrong_choice(value: Any, choices: Iterable[str], at: str = "") -> PydanticCustomError:
    """Returns the error that a validator raises about a value that is none of the choices."""
    return wrong("invalid_value", not_one_of(value, choices), at)


def validation_fault(error: ValidationError, at: str = "") -> RealtimeFault:
    """Converts the first error of a validation; `at` is the path of the validated object."""
    first = error.errors(include_url=False)[0]
    given, limits = first["input"], first.get("ctx", {})
    param = _path(at, *first["loc"])
    match first["type"]:
        case code if "at" in limits:  # an error made by `wrong`
            param = _path(param, limits["at"])
            if code == MISSING:
                return missing(param)
            return RealtimeFault(code, limits["message"], param=param)
        case "missing":
            return missing(param)
        case "union_tag_not_found":
            return missing(_path(param, "type"))
        case "union_tag_invalid":
            message = not_one_of(limits["tag"], limits["expected_tags"])
            return RealtimeFault("invalid_value", message, param=_path(param, "type"))
        case "literal_error" if isinstance(given, str):
            expected = limits["expected"].replace(" or ", ", ")
            return RealtimeFault("invalid_value", not_one_of(given, expected), param=param)
        case "literal_error":
            return wrong_type(param, f"one of {limits['expected']}", given)
        case kind if kind in NAMES.expected:
            return wrong_type(param, NAMES.expected[kind], given)
        case "greater_than_equal" | "less_than_equal" as kind:
            return _out_of_range(param, given, limits, is_low=kind == "greater_than_equal")
        case "string_too_long" | "too_long" as kind:
            return _too_long(param, given, limits["max_length"], kind == "string_too_long")
        case "string_too_short":
            text = "empty string. Expected a string with minimum length 1, but got an empty string"
            return RealtimeFault("empty_string", f"Invalid '{param}': {text} instead.", param=param)
    return RealtimeFault(
        "invalid_value", f"Invalid '{param}': {first_fault(error)[1]}", param=param
    )


def missing(param: str) -> RealtimeFault:
    """Returns the fault for an absent field that is required."""
    return RealtimeFault(MISSING, f"Missing required parameter: '{param}'.", param=param)


def wrong_type(param: str, expected: str, given: Any) -> RealtimeFault:
    """Returns the fault for a value of another JSON type than `expected`, such as "a string"."""
    got = NAMES.json_types.get(type(given).__name__, "another type")
    message = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    return RealtimeFault("invalid_type", message, param=param)


def not_one_of(value: Any, expected: Iterable[str] | str) -> str:
    """Returns the message about a value outside of `expected`: choices, or their quoted list."""
    choices = expected
    if not isinstance(choices, str):
        choices = ", ".join(f"'{choice}'" for choice in choices)
    return f"Invalid value: '{excerpt(value)}'. Supported values are: {choices}."


def _out_of_range(
    param: str, given: Any, limits: Mapping[str, Any], *, is_low: bool
) -> RealtimeFault:
    kind = "decimal" if isinstance(given, float) else "integer"
    side, sign, limit = ("below minimum", ">=", "ge") if is_low else ("above maximum", "<=", "le")
    message = (
        f"Invalid '{param}': {kind} {side} value. "
        f"Expected a value {sign} {limits[limit]}, but got {excerpt(given)} instead."
    )
    code = f"{kind}_below_min_value" if is_low else f"{kind}_above_max_value"
    return RealtimeFault(code, message, param=param)


def _too_long(param: str, given: Any, most: int, is_text: bool) -> RealtimeFault:
    size = len(given) if isinstance(given, str | list | dict) else "more"
    if isinstance(given, dict):
        message = f"too many properties. Expected an object with at most {most} properties, but"
        message += f" got {size} instead."
        code = "object_above_max_properties"
    else:
        kind = "string" if is_text else "array"
        article = "a" if is_text else "an"
        message = f"{kind} too long. Expected {article} {kind} with maximum length {most}, but got"
        message += f" {article} {kind} with length {size} instead."
        code = f"{kind}_above_max_length"
    return RealtimeFault(code, f"Invalid '{param}': {message}", param=param)


def _path(at: str, *parts: str | int) -> str:
    """Writes the path of a field as OpenAI does: `session.tools[0].name`."""
    path = at
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in NAMES.tags and part not in ("", "[key]"):
            path += f".{part}" if path else part
    return path[:MAX_PARAM]
