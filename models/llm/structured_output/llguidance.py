"""Grammars of schemas that only llguidance compiles, and a check of answers.

The check uses the llguidance inside llama.cpp's library, which has the functions of
https://github.com/guidance-ai/llguidance/blob/v1.0.1/parser/llguidance.h. When llguidance refuses a
grammar, or exceeds its limits later, llama.cpp logs that and samples without the grammar. So a
grammar is tried before an answer begins, and the answer is checked while it comes.
"""

import ctypes
import json
import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from models.llm.base import GenerationRequest
from models.llm.structured_output.answer import (
    MAX_CALLS,
    is_json_or_calls,
    may_call_tools,
    schema_of,
    schema_of_arguments,
)
from models.llm.structured_output.ast import SchemaError
from models.llm.structured_output.keywords import IMPLIED, Schema, is_vacuous
from models.llm.structured_output.notations import free_text_before
from models.llm.structured_output.patterns import FORMATS
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK

_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("enum", "const", "default", "examples", "example", "required")
# Without optional white space, which a model could write endlessly.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_PREFIX = re.compile(r"\^[\w-]+")
MAX_ITEMS = 1_000
MAX_CHARS = 60_000  # size of a schema, because its compilation cannot be cancelled
_VOCABULARY = [bytes([byte]) for byte in range(256)] + [b"\xff<end>"]  # a token for each byte
_INIT_BYTES = 256  # more than LlgConstraintInit has
_LOG_LEVEL_AT = 12  # offset of its field log_stderr_level


def to_llguidance(request: GenerationRequest, *, mark_is_token: bool = False) -> str:
    """Returns an answer's grammar in Lark; `mark_is_token` as in `to_lark`. Raises SchemaError."""
    answer = request.response_format
    if not may_call_tools(request):
        assert answer is not None
        return f"start: {_json(schema_of(answer))}\n"
    mark = MARK if mark_is_token else json.dumps(MARK)
    tools = [tool["function"] for tool in request.tools]
    if request.called_tool is not None:
        tools = [tool for tool in tools if tool["name"] == request.called_tool]
    most = MAX_CALLS if request.parallel_tool_calls and request.called_tool is None else 1
    names = [tool["name"] for tool in tools]
    first = f"call_{names.index(request.first_tool)}" if request.first_tool in names else "call"
    rules = [
        f"start: {mark} calls",
        f"calls: {first}" + (f' ("\\n" {mark} call){{0,{most - 1}}}' if most > 1 else ""),
        "call: " + " | ".join(f"call_{index}" for index in range(len(tools))),
    ]
    if answer is not None and is_json_or_calls(request):
        rules[0] += f" | {_json(schema_of(answer))}"
    elif request.tool_choice == "auto":
        rules[0] = free_text_before("calls", mark_is_token=mark_is_token)
    for index, tool in enumerate(tools):
        head = json.dumps(f"{BEFORE_NAME}{tool['name']}{AFTER_NAME}")
        arguments = _json(schema_of_arguments(tool))
        rules.append(f"call_{index}: {head} {arguments} {json.dumps(END)}")
    return "\n".join(rules) + "\n"


def _json(schema: Any) -> str:
    """Returns the Lark term of a schema. Raises SchemaError."""
    text = json.dumps(schema)
    if not isinstance(schema, dict) or len(text) > MAX_CHARS:
        raise SchemaError("the schema is not an object, or too large")
    copy = json.loads(text)
    try:
        schemas = list(_schemas(copy))
        closed = any(part.get("additionalProperties", True) is not True for part in schemas)
        merges = closed and any(map(_merges_objects, schemas))
        if any(_is_misread(part, merges) for part in schemas):
            raise SchemaError("llguidance would not enforce all of the schema")
        for part in schemas:
            _replace_format(part)
            for key in [key for key in part if is_vacuous(key, part[key])]:
                del part[key]
    except (AttributeError, TypeError):
        raise SchemaError("a keyword has a value of another type") from None
    return f"%json {json.dumps({**copy, 'x-guidance': JSON_STYLE})}"


def _schemas(schema: Any) -> Iterator[Schema]:
    """Yields the schema and those nested in it."""
    if isinstance(schema, dict):
        yield schema
    for key, part in schema.items() if isinstance(schema, dict) else ():
        many = isinstance(part, dict) and key in _MAPS_OF_SCHEMAS
        for inner in part.values() if many else part if isinstance(part, list) else [part]:
            if key not in _VALUES:
                yield from _schemas(inner)


def _merges_objects(schema: Schema) -> bool:
    alternatives = schema.keys() & {"anyOf", "oneOf", "$ref"}
    return "allOf" in schema or bool(alternatives and schema.keys() & set(IMPLIED["object"]))


def _is_misread(schema: Schema, merges: bool) -> bool:
    """Whether llguidance 1.0.1 allows more than a schema, or takes too much memory for it.
    `merges`: the schema merges objects, of which some are closed. llguidance accepted invalid
    values for 318 of 6,000 random schemas, all of these kinds."""
    # A listed property escapes its pattern, and a merge opens a closed object.
    patterns = schema.get("patternProperties", ())
    names = schema.get("properties", ())
    if patterns and (
        merges or any(_may_match(pattern, name) for pattern in patterns for name in names)
    ):
        return True
    if schema.get("minProperties", 0) > 1:  # a name can repeat, and counts again
        return True
    if max(schema.get("minItems", 0), schema.get("maxItems", 0)) > MAX_ITEMS:
        return True  # it takes gigabytes
    # Tuples are merged wrongly, and an identifier beside a reference moves its base.
    special = isinstance(schema.get("items"), list) or schema.keys() & {"prefixItems", "$id", "id"}
    return bool(special and schema.keys() & {"allOf", "anyOf", "oneOf", "$ref"})


def _may_match(pattern: str, name: str) -> bool:
    """Whether a name may match; expressions are untrusted, and never run."""
    return not _PREFIX.fullmatch(pattern) or name.startswith(pattern[1:])


def _replace_format(schema: Schema) -> None:
    """Replaces formats by our own patterns, which differ from llguidance's."""
    name = schema.get("format")
    if name in FORMATS:
        schema["allOf"] = [*schema.get("allOf", ()), {"pattern": FORMATS[name]}]
    if name != "regex":
        schema.pop("format", None)


class TextMatcher:
    """Position of a text in a grammar that llama.cpp obeys."""

    def __init__(self, library: str, grammar: str) -> None:
        """Compiles a grammar in Lark; takes some milliseconds. `library` is the path of llama.cpp's
        shared library. Raises SchemaError for a grammar that llguidance refuses."""
        self.grammar = f"%llguidance {{}}\n{grammar}"
        self._library, tokenizer = _loaded(library)
        init = ctypes.create_string_buffer(_INIT_BYTES)
        self._library.llg_constraint_init_set_defaults(init, tokenizer)
        ctypes.c_uint32.from_buffer(init, _LOG_LEVEL_AT).value = 0  # it could show users' text
        data = self.grammar.encode(errors="replace")
        self._matcher = ctypes.c_void_p(self._library.llg_new_matcher(init, b"lark", data))
        if error := self._library.llg_matcher_get_error(self._matcher):
            raise SchemaError(error.decode(errors="replace").splitlines()[0])

    def __del__(self) -> None:
        if hasattr(self, "_matcher"):
            self._library.llg_free_matcher(self._matcher)

    def feed(self, text: str) -> bool:
        """Whether the text so far begins a text of the grammar."""
        data = text.encode(errors="surrogatepass")
        tokens = (ctypes.c_uint32 * len(data))(*data)
        size = ctypes.c_size_t(len(data))
        return not self._library.llg_matcher_consume_tokens(self._matcher, tokens, size)

    @property
    def is_complete(self) -> bool:
        return bool(self._library.llg_matcher_is_accepting(self._matcher))


@lru_cache
def _loaded(path: str) -> tuple[Any, ctypes.c_void_p]:
    """Loads the library, and a tokenizer of bytes."""
    library = ctypes.CDLL(path)
    library.llg_new_tokenizer.restype = library.llg_new_matcher.restype = ctypes.c_void_p
    library.llg_matcher_get_error.restype = ctypes.c_char_p
    library.llg_matcher_is_accepting.restype = ctypes.c_bool
    lengths = (ctypes.c_uint32 * len(_VOCABULARY))(*map(len, _VOCABULARY))
    data = ctypes.create_string_buffer(b"".join(_VOCABULARY))
    # vocab_size, tok_eos, token_lens, token_bytes, tokenizer_json, tokenize_assumes_string,
    # tokenize_fn, use_approximate_greedy_tokenize_fn, tokenize_user_data, slices
    addresses = ctypes.addressof(lengths), ctypes.addressof(data), 0
    init = struct.pack("@IIPPP?P?PP", len(lengths), len(lengths) - 1, *addresses, 0, 0, 1, 0, 0)
    error = ctypes.create_string_buffer(200)
    tokenizer = library.llg_new_tokenizer(init, error, ctypes.c_size_t(len(error)))
    assert tokenizer, error.value
    return library, ctypes.c_void_p(tokenizer)
