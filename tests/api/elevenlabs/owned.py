"""What a workspace owns at ElevenLabs' paths, for the tests of tenants."""

from typing import Any
from uuid import uuid4

_LOCATORS = "pronunciation_dictionary_locators[]"
_SPEECH = "/v1/text-to-speech/{voice_id}"
_PATHS = [
    f"{path}{one}"
    for path in (_SPEECH, "/v1/text-to-dialogue")
    for one in ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
]
DICTIONARY = f"{_LOCATORS}.pronunciation_dictionary_id"
UNKNOWN = {DICTIONARY: str(uuid4())}
IN_BODIES = {DICTIONARY: _PATHS}
BODIES: dict[tuple[str, str], dict[str, Any]] = {("POST", one): {"text": "Hi."} for one in _PATHS}
FREE_FIELDS = {"model_id", f"{_LOCATORS}.version_id"}  # not owned by a workspace, and a number
SOCKETS = {f"{_SPEECH}/stream-input", f"{_SPEECH}/multi-stream-input"}
LISTS = {"/v1/voices", "/v2/voices", "/v1/pronunciation-dictionaries"}
