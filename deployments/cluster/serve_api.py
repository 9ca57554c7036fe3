"""Ray Serve's REST API at the dashboard: deploys configurations and reads the state."""

import os
import re
from pathlib import Path
from typing import Any

import httpx

from configs import environment
from deployments.cluster.node import asks_for_token

FAILED = ("DEPLOY_FAILED", "UNHEALTHY")
TIMEOUT_S = 60.0


def dashboard() -> str:
    """Return the URL of the dashboard of the service that this environment starts."""
    host, _ = environment.cluster_address() or ("127.0.0.1", 0)
    return f"http://{host}:{environment.port('RAY_DASHBOARD_PORT', environment.DASHBOARD_PORT)}"


def deploy(dashboard_url: str, config: dict[str, Any]) -> None:
    """Deploy as `serve deploy` does. Raises ValueError with Serve's message for invalid configs."""
    _ask(dashboard_url, config)


def state(dashboard_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Read the state of Serve and of all applications. Raises ValueError."""
    status: dict[str, Any] = _ask(dashboard_url, timeout_s=timeout_s).json()
    return status


def applications(dashboard_url: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Read the state of each application, by name. Raises ValueError."""
    return dict(state(dashboard_url, timeout_s)["applications"])


def nodes(dashboard_url: str) -> list[dict[str, float]]:
    """Read the resources of each machine that is alive, by Ray's names. Raises ValueError."""
    listed = _ask(dashboard_url, path="/api/v0/nodes?limit=10000").json()["data"]["result"][
        "result"
    ]
    return [node["resources_total"] for node in listed if node["state"] == "ALIVE"]


def running(state: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that was deployed last, from what `state` returns."""
    config = {key: state[key] for key in ("proxy_location",) if key in state}
    listed = state["applications"].values()
    config["applications"] = [application["deployed_app_config"] for application in listed]
    return config


def _ask(
    dashboard_url: str,
    config: dict[str, Any] | None = None,
    path: str = "/api/serve/applications/",
    timeout_s: float = TIMEOUT_S,
) -> httpx.Response:
    """Send `config` to Serve's API or, if it is None, read `path`. Raises ValueError."""
    headers = {}
    if asks_for_token():
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
        try:
            token = os.environ.get("RAY_AUTH_TOKEN") or file.read_text().strip()
        except OSError as error:
            raise ValueError(f"Ray's token cannot be read: {error}") from None
        headers["Authorization"] = f"Bearer {token}"
    method = "GET" if config is None else "PUT"
    try:
        with httpx.Client(
            headers=headers, timeout=timeout_s, trust_env=False
        ) as client:  # ignores proxies
            response = client.request(method, f"{dashboard_url}{path}", json=config)
    except httpx.HTTPError as error:
        raise ValueError(
            f"Ray's dashboard does not answer at {dashboard_url} ({error}): is the service running,"
            " with the same RAY_DASHBOARD_PORT and CLUSTER_ADDRESS?"
        ) from None
    if response.status_code in (401, 403):
        raise ValueError(
            f"Ray's dashboard at {dashboard_url} refuses the token of this service"
            f" ({response.text.strip()}): if it belongs to another service, set RAY_DASHBOARD_PORT"
            " to the port of this one, which its start prints"
        )
    if response.is_error:
        raise ValueError(response.text)
    return response


def failures(state: dict[str, Any]) -> dict[str, str]:
    """Return why applications, or their deployments (`models/Chat`), do not start, by name."""
    reasons: dict[str, str] = {}
    for name, application in state.items():
        if application["status"] in FAILED:
            of_deployments = {
                f"{name}/{deployment}": _reason(status["message"])
                for deployment, status in application["deployments"].items()
                if status["status"] in FAILED
            }
            reasons |= of_deployments or {name: _reason(application["message"])}
    return reasons


def _reason(message: str) -> str:
    """Extract the sentence of ModelNotLoaded or SettingsError from Serve's message. Ray puts
    tracebacks around it. Other messages are cut to their last line, which comes from the replica
    that died."""
    sentences = re.findall(r"(?:ModelNotLoaded|SettingsError): (.+)", message)
    return (sentences or message.strip().splitlines() or ["no reason is given"])[-1].strip()
