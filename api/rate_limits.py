"""The plan's window of requests, and its headers on every answer of the workspace."""

from starlette.requests import Request

from api.services import Services
from pipelines.principals import Principal


async def count_request(request: Request, services: Services, principal: Principal) -> None:
    """Raises ApiError(rate_limited)."""
