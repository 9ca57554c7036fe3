"""What the environment decides: addresses, stores and secrets. Read once, at process start."""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parent.parent
BRAND = os.environ.get("ANTIPHON_BRAND", "Antiphon")
"""The one place that holds the service's own name."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Keys that sign and pepper; never logged."""

    token_key: str  # signs JWTs; at least 32 bytes
    api_key_pepper: str  # HMAC key of stored API keys

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the service listens and keeps things."""

    host: str
    port: int
    data_dir: Path  # database and secrets of the embedded defaults
    database_url: str
    weights_dir: Path  # content-addressed cache of model weights
    secrets: Secrets


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
    data_dir.mkdir(parents=True, exist_ok=True)
    return Settings(
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", "8000")),
        data_dir=data_dir,
        database_url=os.environ.get("DATABASE_URL") or f"sqlite:///{data_dir / 'antiphon.db'}",
        weights_dir=weights_dir(),
        secrets=_load_secrets(data_dir / "secrets.json"),
    )


def _load_secrets(path: Path) -> Secrets:
    """ANTIPHON_TOKEN_KEY and ANTIPHON_KEY_PEPPER, or a file that only its owner may read."""
    token_key = os.environ.get("ANTIPHON_TOKEN_KEY")
    pepper = os.environ.get("ANTIPHON_KEY_PEPPER")
    if not (token_key and pepper):
        stored = _read_or_create(path)
        token_key = token_key or stored["token_key"]
        pepper = pepper or stored["api_key_pepper"]
    if len(token_key.encode()) < 32 or len(pepper.encode()) < 32:
        raise ValueError("ANTIPHON_TOKEN_KEY and ANTIPHON_KEY_PEPPER need at least 32 bytes")
    return Secrets(token_key=token_key, api_key_pepper=pepper)


def _read_or_create(path: Path) -> dict[str, str]:
    fresh = {"token_key": secrets.token_urlsafe(48), "api_key_pepper": secrets.token_urlsafe(48)}
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(fresh))
        try:
            os.link(draft, path)  # atomic: of two first starts, one wins and both read its file
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    if path.stat().st_mode & 0o077:
        raise PermissionError(f"{path.name} may be read by others; run chmod 600 on it")
    stored: dict[str, str] = json.loads(path.read_text())
    return stored
