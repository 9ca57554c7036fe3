"""The readiness of the service on this machine, as its gateway reports it."""

from typing import Any

import httpx

from configs.environment import address_on_this_machine
from configs.settings import Settings


def readyz(url: str) -> dict[str, Any] | None:
    """The gateway's readiness report; None while it is not ready, or for another program."""
    answer = ask(url)
    return answer[1] if answer is not None and answer[0] == 200 else None


def ask(url: str) -> tuple[int, dict[str, Any]] | None:
    """The gateway's status and body, also of an error; None without an answer in JSON."""
    try:
        response = httpx.get(url, timeout=5, trust_env=False)  # no proxy knows this machine
        body = response.json()
    except (httpx.HTTPError, ValueError):
        return None
    return (response.status_code, body) if isinstance(body, dict) else None


def local_url(settings: Settings) -> str:
    """The service's URL for this machine."""
    return address_on_this_machine(settings.host, settings.port)
