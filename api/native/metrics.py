"""`GET /metrics`: the metrics of every process of the cluster, for Prometheus."""

import hmac
from ipaddress import IPv6Address, ip_address

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from api.http.credentials import bearer
from api.http.deps import infrastructure_of
from api.http.errors import ApiError
from telemetry.reports import MEDIA_TYPE, render

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


def routes() -> list[BaseRoute]:
    """A plain Starlette route: it is the operator's, and not part of the OpenAPI document."""
    return [Route("/metrics", _metrics)]


async def _metrics(request: Request) -> Response:
    infrastructure = await infrastructure_of(request)
    _check_access(request, infrastructure.settings.metrics_token)
    page = render(await infrastructure.reports.all())
    return Response(page, headers={"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"})


def _check_access(request: Request, token: str | None) -> None:
    """Raises ApiError. Without a token only this machine is admitted, and not through a proxy."""
    if token is not None:
        given = bearer(request) or ""
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise ApiError(401, "unauthorized", "the token of the metrics is missing or wrong")
        return
    forwarded = any(name in request.headers for name in _FORWARDED)
    if forwarded or not request.app.state.sees_clients or not _is_loopback(request):
        raise ApiError(404, "not_found", "there is nothing at this path")


def _is_loopback(request: Request) -> bool:
    if request.client is None:
        return False
    try:
        address = ip_address(request.client.host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
