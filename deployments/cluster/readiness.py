"""The readiness of the service on this machine, as its gateway reports it."""

from typing import Any

import httpx

from configs.environment import address_on_this_machine
from configs.settings import Settings


def readyz(url: str) -> dict[str, Any] | None:
    """Return the gateway's readiness report; None if it is not ready, or another program
    answers."""
    answer = ask(url)
    return answer[1] if answer is not None and answer[0] == 200 else None


def report(settings: Settings) -> tuple[int, dict[str, Any]] | None:
    """Return the status and body of `/readyz`, with the reasons. Behind a proxy, the gateway gives
    the reasons only to callers with a token from the settings."""
    return ask(f"{local_url(settings)}/readyz", settings.operator_token or settings.metrics_token)


def ask(url: str, token: str | None = None) -> tuple[int, dict[str, Any]] | None:
    """Return the gateway's status and body, also of an error; None unless the answer is JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        # A proxy would look for the loopback address on its own machine.
        response = httpx.get(url, headers=headers, timeout=5, trust_env=False)
        body = response.json()
    except (httpx.HTTPError, ValueError):
        return None
    return (response.status_code, body) if isinstance(body, dict) else None


def local_url(settings: Settings) -> str:
    """Return the URL of the service on this machine."""
    return address_on_this_machine(settings.host, settings.port)
