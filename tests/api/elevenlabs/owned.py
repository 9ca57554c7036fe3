"""What a workspace owns at ElevenLabs' paths, for the tests of tenants."""

from typing import Any
from uuid import uuid4

_LOCATORS = "pronunciation_dictionary_locators[]"
_SPEECH = "/v1/text-to-speech/{voice_id}"
_DIALOGUE = "/v1/text-to-dialogue"
_DICTIONARY = "/v1/pronunciation-dictionaries/{dictionary_id}"
_TAILS = ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
_PATHS = [f"{_SPEECH}{tail}" for tail in _TAILS]
_DIALOGUES = [f"{_DIALOGUE}{tail}" for tail in _TAILS]
_CHANGERS = [
    f"/v1/{name}/{{voice_id}}{tail}"
    for name in ("voice-changer", "speech-to-speech")
    for tail in ("", "/stream")
]
_EDIT = "/v1/voices/{voice_id}/edit"
DICTIONARY = f"{_LOCATORS}.pronunciation_dictionary_id"
VOICE = "inputs[].voice_id"
HISTORY = "/v1/history"
UNKNOWN = {DICTIONARY: str(uuid4()), VOICE: str(uuid4())}
UNKNOWN["history_item_id"] = "0" * 30
IN_BODIES = {DICTIONARY: [*_PATHS, *_DIALOGUES], VOICE: _DIALOGUES}
_RULE = {"type": "alias", "string_to_replace": "a", "alias": "b"}
_LINE = {"text": "Hi.", "voice_id": "21m00Tcm4TlvDq8ikWAM"}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    **{("POST", path): {"text": "Hi."} for path in _PATHS},
    **{("POST", path): {"inputs": [_LINE]} for path in _DIALOGUES},
    ("POST", "/v1/voices/{voice_id}/settings/edit"): {"stability": 0.5},
    ("POST", f"{_DICTIONARY}/add-rules"): {"rules": [_RULE]},
    ("POST", f"{_DICTIONARY}/set-rules"): {"rules": [_RULE]},
    ("POST", f"{_DICTIONARY}/remove-rules"): {"rule_strings": ["a"]},
}
FILES: dict[str, dict[str, Any]] = {
    _EDIT: {"name": (None, "Ann")},
    **{path: {"audio": ("a.wav", b"no audio")} for path in _CHANGERS},
}
OWN = {("POST", path): 400 for path in _CHANGERS}  # not audio
# Not owned by a workspace, a number, and a list that is tried in test_history.py.
FREE_FIELDS = {"model_id", f"{_LOCATORS}.version_id", "history_item_ids"}
# They filter the caller's own lists.
QUERIES = {"voice_ids", "voice_type", "start_after_history_item_id", "voice_id", "model_id"}
SOCKETS = {f"{_SPEECH}/stream-input", f"{_SPEECH}/multi-stream-input"}
LISTS = {HISTORY, "/v1/voices", "/v2/voices", "/v1/pronunciation-dictionaries"}
