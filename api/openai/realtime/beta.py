"""Translates between the beta version of Realtime events and the GA version. In the beta, the
session is flat, and events and parts have other names (openai-python's `types/beta/realtime`)."""

from collections.abc import Iterable, Mapping
from typing import Any

from api.openai.realtime.server_events import NAMES

SUBPROTOCOL = "openai-beta.realtime-v1"

_FORMAT_NAMES = {form["type"]: name for name, form in NAMES.formats.items()}
_RESPONSE_PATHS = {
    name: NAMES.paths[name] for name in ("modalities", "voice", "output_audio_format")
}
_GA_ONLY = "conversation.item.done"


def is_beta(headers: Mapping[str, str], subprotocols: Iterable[str]) -> bool:
    """Whether the handshake asks for the beta; the names of `headers` are in lower case."""
    return "realtime=v1" in headers.get("openai-beta", "") or SUBPROTOCOL in subprotocols


def from_beta(event: dict[str, Any]) -> dict[str, Any]:
    """Returns a client's event with the names of GA, not validated. GA events stay as they are.
    Flat fields are read in GA events too, since other services of this dialect (xAI) use some."""
    if event.get("type") == "transcription_session.update":
        event = {**event, "type": "session.update"}
    for name in ("session", "response"):
        if isinstance(body := event.get(name), dict):
            event = {**event, name: _nested(body)}
    return event


def to_beta(event: dict[str, Any]) -> dict[str, Any] | None:
    """Returns a server's event with the names of the beta; None for an event that only GA has."""
    kind = event["type"]
    if kind == _GA_ONLY:
        return None
    event = {**event, "type": NAMES.events.get(kind, kind)}
    if session := event.get("session"):
        event["session"] = _flat(session, NAMES.paths)
        if session["type"] == "transcription":
            event["type"] = f"transcription_{kind}"
    if response := event.get("response"):
        event["response"] = _flat(response, _RESPONSE_PATHS)
        event["response"]["output"] = [_item(item) for item in response["output"]]
    if item := event.get("item"):
        event["item"] = _item(item)
    return event


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Returns the nested object of GA. If a field is given in both shapes, the GA shape counts."""
    nested = {name: value for name, value in flat.items() if name not in NAMES.paths}
    for name, (*groups, last) in NAMES.paths.items():
        if name not in flat:
            continue
        place = nested
        for group in groups:
            inner = place.get(group) or {}  # copied below, since the object belongs to the caller
            place[group] = dict(inner) if isinstance(inner, dict) else {}
            place = place[group]
        place.setdefault(last, _value(name, flat[name]))
    return nested


def _value(name: str, value: Any) -> Any:
    if name.endswith("_format") and isinstance(value, str):
        return NAMES.formats.get(value, {"type": value})
    if name == "modalities" and isinstance(value, list) and "audio" in value:
        return ["audio"]  # the beta lists "text" beside "audio"
    return value


def _flat(nested: dict[str, Any], paths: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    moved = {path[0] for path in paths.values()} | {"type", "truncation"}
    flat = {name: value for name, value in nested.items() if name not in moved}
    for name, path in paths.items():
        value: Any = nested
        for group in path:
            value = value.get(group, {}) if isinstance(value, dict) else None
        if value != {}:
            flat[name] = _beta_value(name, value)
    return flat


def _beta_value(name: str, value: Any) -> Any:
    if name.endswith("_format"):
        return _FORMAT_NAMES[value["type"]]
    return ["audio", "text"] if name == "modalities" and value == ["audio"] else value


def _item(item: dict[str, Any]) -> dict[str, Any]:
    if item["type"] != "message":
        return item
    parts = [
        {**part, "type": NAMES.contents.get(part["type"], part["type"])} for part in item["content"]
    ]
    return {**item, "content": parts}
