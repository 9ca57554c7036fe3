"""What the environment decides: addresses, stores and secrets. Read once, at process start."""

import base64
import fcntl
import json
import os
import secrets
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent
BRAND = os.environ.get("ANTIPHON_BRAND", "Antiphon")
"""The one place that holds the service's own name."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Keys that sign and pepper; never logged."""

    token_key: str  # signs JWTs; at least 32 bytes
    api_key_pepper: str  # HMAC key of stored API keys
    url_key: str  # signs the addresses of files
    data_keys: tuple[str, ...]  # base64 of 32 bytes each; the first seals, all of them open

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """How webhooks are delivered; what differs from the defaults is for tests and own networks."""

    allowed_networks: tuple[IPv4Network | IPv6Network, ...] = ()  # beside public addresses
    time_scale: float = 1.0  # of waits between attempts
    ca_file: str | None = None  # authorities that are trusted beside the system's


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the service listens and keeps things."""

    host: str
    port: int
    data_dir: Path  # database and secrets of the embedded defaults
    database_url: str
    weights_dir: Path  # content-addressed cache of model weights
    secrets: Secrets
    redis_url: str | None  # limits and leases; None keeps them in the cluster
    storage_url: str  # of files, as fsspec understands it
    public_url: str  # where clients reach this service, without a slash at the end
    webhooks: WebhookSettings
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is believed
    metrics_token: str | None = None  # asked for by GET /metrics; None lets in the loopback only


def weights_dir() -> Path:
    """The cache of weights: ANTIPHON_WEIGHTS or ~/.cache/antiphon/weights, outside the tree."""
    override = os.environ.get("ANTIPHON_WEIGHTS")
    if override:
        return Path(override).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "antiphon" / "weights"


def load_settings() -> Settings:
    """Reads the environment; makes the data folder and, on the first start, its secrets."""
    data_dir = Path(os.environ.get("ANTIPHON_DATA") or PROJECT_DIR / "data").expanduser().resolve()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8000"))
    return Settings(
        host=host,
        port=port,
        data_dir=data_dir,
        database_url=os.environ.get("DATABASE_URL") or f"sqlite:///{data_dir / 'antiphon.db'}",
        weights_dir=weights_dir(),
        secrets=_load_secrets(data_dir / "secrets.json"),
        redis_url=os.environ.get("REDIS_URL") or None,
        trusted_proxies=tuple(
            str(ip_network(text.strip()))
            for text in os.environ.get("TRUSTED_PROXIES", "").split(",")
            if text.strip()
        ),
        storage_url=os.environ.get("STORAGE_URL") or f"file://{data_dir / 'files'}",
        public_url=(os.environ.get("PUBLIC_URL") or f"http://{host}:{port}").rstrip("/"),
        webhooks=WebhookSettings(
            allowed_networks=tuple(
                ip_network(text.strip())
                for text in os.environ.get("WEBHOOK_NETWORKS", "").split(",")
                if text.strip()
            ),
            time_scale=float(os.environ.get("WEBHOOK_TIME_SCALE", "1")),
            ca_file=os.environ.get("WEBHOOK_CA_FILE") or None,
        ),
        metrics_token=os.environ.get("METRICS_TOKEN") or None,
    )


def _load_secrets(path: Path) -> Secrets:
    """Each from its variable, or from a file that only its owner may read."""
    given = {name: os.environ.get(variable) for name, variable in _VARIABLES.items()}
    if not all(given.values()):
        stored = _read_or_create(path)
        given = {name: value or stored[name] for name, value in given.items()}
    values = {name: value for name, value in given.items() if value}
    for name, value in values.items():
        if len(value.encode()) < 32:
            raise ValueError(f"{_VARIABLES[name]} needs at least 32 bytes")
    data_keys = tuple(values.pop("data_keys").split(","))
    if any(len(base64.b64decode(key, validate=True)) != 32 for key in data_keys):
        raise ValueError("ANTIPHON_DATA_KEYS needs base64 of 32 bytes, several joined by commas")
    return Secrets(**values, data_keys=data_keys)


_VARIABLES = {
    "token_key": "ANTIPHON_TOKEN_KEY",
    "api_key_pepper": "ANTIPHON_KEY_PEPPER",
    "url_key": "ANTIPHON_URL_KEY",
    "data_keys": "ANTIPHON_DATA_KEYS",
}


def _fresh_secrets() -> dict[str, str]:
    fresh = {name: secrets.token_urlsafe(48) for name in _VARIABLES}
    fresh["data_keys"] = base64.b64encode(secrets.token_bytes(32)).decode()
    return fresh


def _read_or_create(path: Path) -> dict[str, str]:
    """Adds what is missing. Processes that start at once take turns, and read the same."""
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored: dict[str, str] = {}
        if path.exists():
            if path.stat().st_mode & 0o077:
                raise PermissionError(f"{path.name} may be read by others; run chmod 600 on it")
            stored = json.loads(path.read_text())
        complete = _fresh_secrets() | stored
        if complete != stored:
            draft = path.with_name(f".{path.name}.new")
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(complete))
            os.replace(draft, path)
    return complete
