"""Writes antiphon/types.py from the OpenAPI document: the types of the Python client's answers, and
of the options of its methods.

    python tools/client_types.py          writes the file
    python tools/client_types.py --check  exits with 1 if the file is out of date

The file has the types that antiphon/client.py imports, and all types that these refer to.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from api.app import routed_app

ROOT = Path(__file__).resolve().parent.parent
CLIENT, TYPES = ROOT / "antiphon" / "client.py", ROOT / "antiphon" / "types.py"
# Schemas of requests, and the fields to omit, which the client's methods declare themselves.
REQUESTS: dict[str, set[str]] = {
    "ChatCompletionBody": {"messages", "stream", "text"},
    "ExplainBody": {"text", "script"},
    "OpenAISpeechBody": {"input", "stream_format"},
    "NewBrowserToken": set(),
    "Pronunciation": set(),
    "ScriptTurn": set(),
    "SynthesisBody": {"text", "script"},
    "TranscriptionFields": {"audio", "response_format"},
    "VoiceFields": {"files", "name"},
}
HEAD = '''"""Answers of the service and options of requests, written by tools/client_types.py."""

from __future__ import annotations

from typing import {names}

'''
PLAIN = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "object": "dict[str, Any]",
}


def python_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(python_type(one) for one in choices))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        shown = [json.dumps(v) if isinstance(v, str) else repr(v) for v in values]
        return f"Literal[{', '.join(shown)}]"
    if schema.get("type") == "array":
        return f"list[{python_type(schema.get('items', {}))}]"
    more = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(more, dict):
        return f"dict[str, {python_type(more)}]"
    return PLAIN.get(schema.get("type", ""), "Any")


def named_in(schema: Any) -> set[str]:
    """All schemas that this one refers to."""
    if isinstance(schema, list):
        return set().union(*map(named_in, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].rpartition("/")[2]} if "$ref" in schema else set()
    return own.union(*map(named_in, schema.values()))


def without(schema: dict[str, Any], fields: set[str]) -> dict[str, Any]:
    """Return a schema without some of its fields."""
    properties = schema.get("properties", {})
    kept = {name: about for name, about in properties.items() if name not in fields}
    return {**schema, "properties": kept} if properties else schema


def written(schemas: dict[str, Any], wanted: set[str]) -> str:
    found: set[str] = set()
    while wanted:
        found |= wanted
        kept = (without(schemas[name], REQUESTS.get(name, set())) for name in wanted)
        wanted = set().union(*map(named_in, kept)) - found
    parts = []
    for name in sorted(found):
        named = REQUESTS.get(name)
        schema = without(schemas[name], named or set())
        if "properties" not in schema:
            parts.append(f"\n{name} = {python_type(schema)}\n")
            continue
        lines = []
        for field, about in schema["properties"].items():
            kind = python_type(about)
            is_there = field in schema.get("required", ()) or ("default" in about and named is None)
            lines.append(f"    {field}: {kind if is_there else f'NotRequired[{kind}]'}\n")
        parts.append(f"\nclass {name}(TypedDict):\n{''.join(lines)}\n")
    text = "".join(parts).rstrip() + "\n"
    used = [one for one in ("Any", "Literal", "NotRequired", "TypedDict") if one in text]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TYPES), "-"]
    made = HEAD.replace("{names}", ", ".join(used)) + text
    return subprocess.run(command, input=made, capture_output=True, text=True, check=True).stdout


def main() -> None:
    document = routed_app().openapi()
    schemas = document["components"]["schemas"]
    for path in ("/stt", "/voices"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["multipart/form-data"]
        schemas[body["schema"]["title"]] = body["schema"]
    named = re.search(r"from antiphon.types import \(([^)]*)\)", CLIENT.read_text(encoding="utf-8"))
    assert named is not None
    wanted = set(re.findall(r"\w+", named[1]))
    text = written(schemas, wanted)
    if "--check" not in sys.argv:
        TYPES.write_text(text, encoding="utf-8")
    elif not TYPES.exists() or TYPES.read_text(encoding="utf-8") != text:
        sys.exit("antiphon/types.py is out of date: run `make client`")


if __name__ == "__main__":
    main()
