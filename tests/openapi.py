"""The OpenAPI document of the service, built once a process: it takes half a second."""

from functools import cache
from typing import Any

from api.app import routed_app


@cache
def document() -> dict[str, Any]:
    """Needs no running service; not to be changed."""
    return routed_app().openapi()
