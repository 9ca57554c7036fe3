"""The OpenAPI document of FastAPI, corrected to match the API."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from api.http.routing import TEXTS, StrictRoute
from api.http.streaming import NdjsonStream
from configs.load import load_yaml

EXAMPLES = str(Path(__file__).with_name("request_examples.yaml"))


def truthful_openapi(app: FastAPI) -> dict[str, Any]:
    """Returns FastAPI's document with the API's statuses, error bodies and authentication."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=TEXTS["description"],
        tags=TEXTS["tags"],
        servers=[{"url": "/"}],
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    components["securitySchemes"] = TEXTS["schemes"]
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
            for status, text in TEXTS["answers"].get(path, {}).items():
                responses[str(status)] = _error(text)
            if "requestBody" not in operation:
                responses.pop("408", None)
            content = responses.get("200", {}).get("content", {})
            if NdjsonStream.media_type in content:  # FastAPI supports one media type per route
                content[NdjsonStream.media_type] = content.pop("application/json")
            if (scheme := schemes[path, method]) != "bearer":
                operation["security"] = [{scheme: []}] if scheme else []
            elif method == "post":
                responses["409"] = _error(TEXTS["still_running"])
    return document


def _error(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ErrorBody"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}
