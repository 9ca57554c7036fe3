"""JSON schemas that answers are constrained to: usual, unsupported and hostile ones."""

from typing import Any

_NODE = {
    "type": "object",
    "properties": {
        "v": {"type": "integer"},
        "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
    },
    "required": ["v", "next"],
}
_SUM = {
    "type": "object",
    "properties": {"op": {"const": "add"}, "l": {"$ref": "#"}, "r": {"$ref": "#"}},
    "required": ["op", "l", "r"],
}
_LEAF = {
    "type": "object",
    "properties": {"op": {"const": "num"}, "v": {"type": "number"}},
    "required": ["op", "v"],
}
_PATTERNS = {
    "a": r"^\d{3}-\w+$",
    "b": "foo|^bar$",
    "c": '[^a-z"]x?',
    "d": "^(a|b(c|d){2,3})*$",
    "e": '\\\\["\\n]',
    "f": r"^\S+@\S+\.[a-z]{2,}$",
    "g": "^.{2,5}$",
    "h": "a.c",
    "i": r"^[^\d]\W$",
}
_FORMATS = ("date", "time", "date-time", "uuid", "email", "ipv4", "uri")


def strings(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def record(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


GOOD: dict[str, Any] = {
    "keywords that constrain nothing": {
        "type": "object",
        "propertyNames": {"type": "string", "description": "as Zod 4 writes records"},
        "additionalProperties": {"type": "array", "items": strings(), "uniqueItems": False},
        "patternProperties": {},
        "unevaluatedProperties": True,
        "maxProperties": 1,
    },
    "person": record({"name": strings(), "age": {"type": "integer", "minimum": 0}}, "name", "age"),
    "optional": record(
        {
            "a": strings(maxLength=3),
            "b": {"type": "boolean"},
            "c": {"type": "null"},
            "d": {"type": "number"},
        },
        "c",
        additionalProperties=False,
    ),
    "numbers": record(
        {
            "i": {"type": "integer", "minimum": -37, "maximum": 1204},
            "n": {"type": "number", "minimum": 0, "maximum": 1},
            "x": {"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 20.125},
            "p": {"type": "integer", "exclusiveMinimum": 0, "maximum": 1e30},
            "q": {"type": "number", "maximum": -3},
            "t": {"type": "number", "minimum": 0.1, "maximum": 0.15},
        },
        *"inxpqt",
    ),
    "list of itself": {"$defs": {"Node": _NODE}, "$ref": "#/$defs/Node"},
    "tree of itself": {"anyOf": [_SUM, _LEAF]},
    "oneOf": {
        "oneOf": [
            record({"k": {"const": "a"}, "x": {"type": "integer"}}, "k", "x"),
            record({"k": {"enum": ["b", "c"]}}, "k"),
            strings(),
            {"type": "null"},
        ]
    },
    "allOf": {
        "allOf": [
            record({"a": {"type": "integer", "minimum": 3}}, "a"),
            record({"a": {"maximum": 9}, "b": strings(pattern=r"^[A-Z]{2}\d+$")}, "b"),
        ]
    },
    "allOf of what is closed": {
        "allOf": [
            record({"a": {"type": "integer"}}, additionalProperties=False),
            record({"b": strings()}),
        ]
    },
    "lists": {
        "type": "array",
        "items": {
            "type": "array",
            "items": {"enum": ["x", 'y"z', 1, None, {"a": [1]}, 12]},
            "minItems": 2,
            "maxItems": 4,
        },
        "minItems": 1,
        "maxItems": 3,
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, strings(format="date")],
        "items": False,
        "minItems": 2,
    },
    "patterns": record({k: strings(pattern=p) for k, p in _PATTERNS.items()}, *_PATTERNS),
    "formats": record({k: strings(format=k) for k in _FORMATS}, *_FORMATS),
    "anything": {},
    "any object": {"type": "object"},
    "types": {"type": ["string", "null", "integer"], "minLength": 2, "maxLength": 5, "minimum": 4},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    "names": record({'a b"\\': strings(), "é\u2028": True, "never": False}, "é\u2028"),
    "no properties": {"type": "object", "properties": {}},
    "as pydantic writes it": {
        "$defs": {"Unit": {"enum": ["c", "f"], "title": "Unit", "type": "string"}},
        "title": "Weather",
        **record(
            {
                "city": strings(title="City", minLength=1),
                "unit": {"$ref": "#/$defs/Unit", "default": "c", "description": "of degrees"},
                "days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                "tags": {"type": "array", "items": strings()},
            },
            "city",
            "tags",
        ),
    },
}

BAD: dict[str, Any] = {
    "not is only supported": {"not": {"type": "string"}},
    "if": {"if": {}, "then": {}},
    "patternProperties": {"type": "object", "patternProperties": {"^a": {}}},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "multipleOf": {"type": "integer", "multipleOf": 3},
    "type: it must be one of": {"type": "int"},
    "type: it must be a string": {"type": {"a": 1}},
    "properties": {"type": "object", "properties": ["a"]},
    "required": {"type": "object", "required": [1]},
    "minLength: it must be": {"type": "string", "minLength": -1},
    "minLength: it is more": {"type": "string", "minLength": 3, "maxLength": 2},
    "minLength: at most": {"type": "string", "minLength": 10**9},
    "minItems": {"type": "array", "minItems": 10**9},
    "references within": {"$ref": "https://example.com/schema"},
    "refers to nothing": {"$ref": "#/$defs/Missing"},
    "leads to itself": {"$ref": "#"},
    "alternative to itself": {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
    "allOf": {"allOf": []},
    "const": {"anyOf": [record({"a": {"$ref": "#"}}), record({"a": {"$ref": "#"}, "b": {}})]},
    "oneOf": {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 2}]},
    "no value": {"type": "string", "enum": []},
    "minProperties": {"type": "object", "additionalProperties": False, "minProperties": 1},
    "no number": {"type": "integer", "minimum": 1.2, "maximum": 1.8},
    "cannot be read": strings(pattern="(a"),
    "lookahead": strings(pattern="^(?=a)b$"),
    "reference to a group": strings(pattern=r"^(a)\1$"),
    "flags": strings(pattern="(?i)a"),
    "may be empty": strings(pattern="^(a*)*$"),
    "repeats too often": strings(pattern="^a{9999}$"),
    "too large": strings(pattern="^((a{9}){9}){9}$"),
    "more characters than maxLength": strings(pattern="^abc$", maxLength=2),
    "has no end": record({"a": {"$ref": "#"}}, "a"),
    "must contain itself": record({"a": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}})
    | {"$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}, "minItems": 1}}},
    "schema must be": {"anyOf": [{"$ref": "#/x"}], "x": 7},
}


def doubling(depth: int) -> dict[str, Any]:
    """An ambiguous schema: two parses at each of its levels."""
    defs = {
        f"D{i}": {
            "anyOf": [
                record({"a": {"$ref": f"#/$defs/D{i + 1}"}}),
                record({"a": {"$ref": f"#/$defs/D{i + 1}"}, "b": strings()}),
            ]
        }
        for i in range(depth)
    }
    return {"$defs": {**defs, f"D{depth}": strings()}, "$ref": "#/$defs/D0"}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


HOSTILE: dict[str, Any] = {
    "doubling": doubling(30),
    "deep": _nested(60),
    "a megabyte": {"enum": ["x" * 1_000_000]},
    "many properties": record({f"p{i}": {} for i in range(5000)}),
    "many alternatives": {"anyOf": [{"const": i} for i in range(3000)]},
    "all of itself": {"$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"},
    "references to references": {
        "$defs": {
            f"D{i}": {"allOf": [{"$ref": f"#/$defs/D{i + 1}"}, {"$ref": f"#/$defs/D{i + 1}"}]}
            for i in range(30)
        },
        "$ref": "#/$defs/D0",
    },
    "a slow expression": strings(pattern="^(a+)+(b+)+(c+)+$"),
    "long lists of long lists": {
        "type": "array",
        "minItems": 100,
        "items": {"type": "array", "minItems": 100, "items": strings(minLength=1000)},
    },
}
