"""The OpenAPI document, corrected to what the API does."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from api.http.routing import StrictRoute
from api.http.streaming import NdjsonStream
from configs.load import load_yaml

DESCRIPTION = """
Send `Authorization: Bearer <API key>` with every request; the token of sign-up and login works
wherever a key does. Every error has the body `{success: false, error, message}`. Paths under
`/openai/v1` answer errors in the shape of OpenAI's API, as does any path to a request with the
header `X-Stainless-Lang`, which the official clients of OpenAI send. Every response has the header
`X-Request-Id`.

Unknown fields of a body, a form or the query are ignored and named in the header
`X-Ignored-Fields` of the answer, such as `X-Ignored-Fields: voise, messages[].nmae`. With
`Prefer: handling=strict` they are 400 `validation_error` instead. U+0000 in any text is 400.

A POST with a key or token may carry an `Idempotency-Key` (1 to 255 visible ASCII characters). Sent
again with the same key within 24 hours, it gets the stored first response with the header
`Idempotency-Replayed: true`; nothing is executed or charged again. With another body or API key
the response is 400 `idempotency_mismatch`. Error responses are not stored. A request with an
`Idempotency-Key` continues when its client disconnects.

Live speech and live transcription are the WebSockets `/ws/tts` and `/ws/stt`, which OpenAPI cannot
describe: [the guide](/guide/websockets.html) documents their messages. Voice agents are the
WebSockets `/openai/v1/realtime` ([agents](/guide/agents.html)) and `/telephony/twilio`
([telephony](/guide/telephony.html)).

The paths under `/tts/v1` are those of Inworld's text-to-speech API, for its clients. They also
accept `Authorization: Basic <API key>`, with the key as it is ([details](/guide/inworld.html)).
"""
EXAMPLES = str(Path(__file__).with_name("request_examples.yaml"))
SCHEMES = {
    name: {"type": "http", "scheme": "bearer", "description": text}
    for name, text in (("bearer", "An API key or a token."), ("operator", "The OPERATOR_TOKEN."))
}
_STILL_RUNNING = {
    "description": "The first request with this Idempotency-Key runs, or its answer is not stored",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
}


def truthful_openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document with our statuses, our error bodies and our authentication."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=DESCRIPTION,
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    components["securitySchemes"] = SCHEMES
    for name in ("HTTPValidationError", "ValidationError"):  # the framework's own
        components.get("schemas", {}).pop(name, None)
    for name, example in load_yaml(TypeAdapter(dict[str, dict[str, Any]]), EXAMPLES).items():
        components["schemas"][name]["examples"] = [example]
    document["security"] = [{"bearer": []}]
    schemes = {
        (route.path_format, method.lower()): route.scheme
        for route in app.routes
        if isinstance(route, StrictRoute)
        for method in route.methods or ()
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            # A wrong field is 400 here; the framework would answer 422.
            responses.pop("422", None)
            if "requestBody" not in operation:
                responses.pop("408", None)
            content = responses.get("200", {}).get("content", {})
            if NdjsonStream.media_type in content:  # the framework knows one type a route
                content[NdjsonStream.media_type] = content.pop("application/json")
            if (scheme := schemes[path, method]) != "bearer":
                operation["security"] = [{scheme: []}] if scheme else []
            elif method == "post":
                responses["409"] = _STILL_RUNNING
    return document
