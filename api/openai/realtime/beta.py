"""The beta of the Realtime dialect, for clients that ask for it (`OpenAI-Beta: realtime=v1`).

Its session is flat, its events and contents have other names (openai-python's
`types/beta/realtime`). Everything else here knows only the GA version.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from api.openai.realtime.server_events import NAMES

SUBPROTOCOL = "openai-beta.realtime-v1"

_FORMAT_NAMES = {form["type"]: name for name, form in NAMES.formats.items()}
_RESPONSE_PLACES = {
    name: NAMES.places[name] for name in ("modalities", "voice", "output_audio_format")
}
_ABSENT = "conversation.item.done"


def is_beta(headers: Mapping[str, str], subprotocols: Iterable[str]) -> bool:
    """Whether the handshake asks for the beta; the names of `headers` are in lower case."""
    return "realtime=v1" in headers.get("openai-beta", "") or SUBPROTOCOL in subprotocols


def from_beta(event: dict[str, Any]) -> dict[str, Any]:
    """A client's event with the names of GA, unchecked. Events of GA stay as they are.

    Flat fields are read in GA too: other services of this dialect (xAI) have some of them there.
    """
    if event.get("type") == "transcription_session.update":
        event = {**event, "type": "session.update"}
    for name in ("session", "response"):
        if isinstance(body := event.get(name), dict):
            event = {**event, name: _nested(body)}
    return event


def to_beta(event: dict[str, Any]) -> dict[str, Any] | None:
    """A server's event with the names of the beta; None for one that the beta does not have."""
    kind = event["type"]
    if kind == _ABSENT:
        return None
    event = {**event, "type": NAMES.events.get(kind, kind)}
    if session := event.get("session"):
        event["session"] = _flat(session, NAMES.places)
        if session["type"] == "transcription":
            event["type"] = f"transcription_{kind}"
    if response := event.get("response"):
        event["response"] = _flat(response, _RESPONSE_PLACES)
        event["response"]["output"] = [_item(item) for item in response["output"]]
    if item := event.get("item"):
        event["item"] = _item(item)
    return event


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """The object of GA; where both shapes name a field, that of GA counts."""
    nested = {name: value for name, value in flat.items() if name not in NAMES.places}
    for name, (*groups, last) in NAMES.places.items():
        if name not in flat:
            continue
        place = nested
        for group in groups:
            # A copy, since the objects belong to the caller.
            inner = place.get(group) or {}
            place[group] = dict(inner) if isinstance(inner, dict) else {}
            place = place[group]
        place.setdefault(last, _value(name, flat[name]))
    return nested


def _value(name: str, value: Any) -> Any:
    if name.endswith("_format") and isinstance(value, str):
        return NAMES.formats.get(value, {"type": value})
    if name == "modalities" and isinstance(value, list) and "audio" in value:
        return ["audio"]  # the beta's answers with audio name their text too
    return value


def _flat(nested: dict[str, Any], places: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    moved = {path[0] for path in places.values()} | {"type", "truncation"}
    flat = {name: value for name, value in nested.items() if name not in moved}
    for name, path in places.items():
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
