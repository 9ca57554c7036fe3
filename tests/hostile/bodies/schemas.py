"""Valid values of the schemas of the OpenAPI document."""

from random import Random
from typing import Any

TEXTS = ["Hello there.", "It is 8:30 on 3/4/2025.", "Guten Morgen!", "a", "Ann"]
BY_PATTERN = {"^[a-zA-Z0-9_-]{1,64}$": "get_weather"}
BY_FORMAT = {
    "date-time": "2030-01-01T00:00:00Z",
    "date": "2026-01-01",
    "uri": "https://example.com/hook",
    "email": "ann@example.com",
    "uuid": "6f1c1c1e-8a43-4b3a-9d0e-0d6a6c1f5a11",
}
OPTIONAL = 0.4  # how often a field that may be absent is there
MOST_DEPTH = 7


class Filler:
    """Makes values; `references` are values of fields by their names, such as ids."""

    def __init__(
        self, schemas: dict[str, Any], references: dict[str, list[Any]], chance: Random
    ) -> None:
        self._schemas = schemas
        self._references = references
        self._chance = chance

    def fill(self, schema: dict[str, Any], name: str = "", depth: int = 0) -> Any:
        """A valid value, as far as the schema tells."""
        chance = self._chance
        if name in self._references and chance.random() < 0.8:
            return chance.choice(self._references[name])
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return chance.choice(schema["enum"])
        for union in ("anyOf", "oneOf"):
            if union in schema:
                real = [one for one in schema[union] if one.get("type") != "null"]
                return self.fill(chance.choice(real), name, depth)
        return self._typed(schema, name, depth)

    def _typed(self, schema: dict[str, Any], name: str, depth: int) -> Any:
        chance = self._chance
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 10))
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                least = schema.get("minItems", 0)
                most = max(least, min(schema.get("maxItems", 3), 0 if depth > MOST_DEPTH else 3))
                items = schema.get("items", {})
                count = chance.randint(least, most)
                return [self.fill(items, name, depth + 1) for _ in range(count)]
            case "string":
                return self._text(schema)
            case "boolean":
                return chance.random() < 0.5
            case "integer":
                return chance.randint(int(low), int(min(high, low + 1000)))
            case "number":
                return round(chance.uniform(low, min(high, low + 1000)), 3)
        return chance.choice([*TEXTS, 1, {}, []])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        made = {
            name: self.fill(field, name, depth + 1)
            for name, field in schema.get("properties", {}).items()
            if name in required or (depth < MOST_DEPTH and self._chance.random() < OPTIONAL)
        }
        if isinstance(more := schema.get("additionalProperties"), dict):
            made["a"] = self.fill(more, "a", depth + 1)
        return made

    def _text(self, schema: dict[str, Any]) -> str:
        if (pattern := schema.get("pattern")) in BY_PATTERN:
            return BY_PATTERN[pattern]
        if (form := schema.get("format")) in BY_FORMAT:
            return BY_FORMAT[form]
        text = self._chance.choice(TEXTS)[: schema.get("maxLength")]
        return text.ljust(schema.get("minLength", 0), "a")
