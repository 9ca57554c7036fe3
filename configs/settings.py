"""The settings of the service, from environment variables; read once, at process start."""

import base64
import fcntl
import json
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Literal, get_args

from configs import environment, running
from configs.environment import SettingsError, check_private, sqlite_url

PROJECT_DIR = Path(__file__).resolve().parent.parent
BRAND = os.environ.get("ANTIPHON_BRAND", "Antiphon")
"""The service's own name, which is defined only here."""

DATABASE = "antiphon.db"  # in the data folder
SECRETS = "secrets.json"
OWNER = "ANTIPHON_OWNER"
"""Variable by which `make run` tells its processes the id of the workspace that it created."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Keys of signatures, HMACs and encryption; never logged."""

    token_keys: tuple[str, ...]  # keys of JWTs, at least 32 bytes each; the first signs, all verify
    api_key_pepper: str  # HMAC key of stored API keys
    url_key: str  # signs the URLs of files
    data_keys: tuple[str, ...]  # base64 of 32 bytes each; the first encrypts, all decrypt
    generated: dict[str, str] | None = field(default=None, compare=False)  # for `keep_secrets`

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Delivery of webhooks; values other than the defaults are for tests and private networks."""

    allowed_networks: tuple[IPv4Network | IPv6Network, ...] = ()  # in addition to public addresses
    time_scale: float = 1.0  # factor of the pauses between attempts
    ca_file: str | None = None  # certificate authorities in addition to the system's


ConsentNeeded = Literal["off", "attest", "spoken"]
"""The consent that `POST /voices` requires: none, a statement, or a sentence read aloud. Consent
that is not required is still stored, and a sentence is still checked."""


SignUpPolicy = Literal["open", "invite", "closed"]
"""Who can make an account: anyone who reaches the service, those with an invite, or no one."""

PlanChanges = Literal["self", "operator", "webhook"]
"""Who changes plans: workspaces themselves, the operator's commands, or workspaces with a
confirmation by the operator's payment system."""


@dataclass(frozen=True, slots=True)
class PlanWebhook:
    """The operator's payment system, and the secret that both sides sign with."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WyomingSettings:
    """Where Home Assistant's protocol is served, and the API key that all its connections use."""

    host: str
    port: int
    key: str = field(repr=False)
    announces: bool  # announces the service by multicast DNS


@dataclass(frozen=True, slots=True)
class WebRtcSettings:
    """The UDP sockets of Realtime calls over WebRTC, and the servers that help to reach them."""

    addresses: tuple[tuple[str, str], ...] = ()
    """Addresses to listen on, each with the address that clients get; without any, all addresses of
    the machine."""

    ports: tuple[int, int] | None = None  # first and last UDP port; None: any free port
    ice_servers: tuple[str, ...] = ()  # URLs of a STUN server and of a TURN server
    username: str | None = None  # for the TURN server
    password: str | None = field(default=None, repr=False)


WatermarkOf = Literal["off", "clones", "all"]
"""Which speech gets an inaudible watermark."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The addresses, stores, secrets and options of the service."""

    host: str
    port: int
    data_dir: Path  # database and secrets of the embedded defaults
    database_url: str
    weights_dir: Path  # content-addressed cache of model weights
    secrets: Secrets
    redis_url: str | None  # store of limits and leases; None: they are in the cluster
    storage_url: str  # fsspec URL of the store of files
    public_url: str  # base URL of this service for clients, without a slash at the end
    webhooks: WebhookSettings
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is trusted
    free_space_mb: int | None = None  # with less, nothing is stored; None: by the volume's size
    storage_shared: bool = False  # all machines share the folder of `storage_url`
    require_consent: ConsentNeeded = "off"  # whether a custom voice needs consent
    watermark: WatermarkOf = "off"
    metrics_token: str | None = None  # token for GET /metrics; None: only from the loopback
    operator_token: str | None = field(default=None, repr=False)  # None: /operator does not exist
    sign_up: SignUpPolicy = "open"
    plan_changes: PlanChanges = "self"
    plan_webhook: PlanWebhook | None = None  # where plan_changes is webhook
    wyoming: WyomingSettings | None = None  # None: not served
    webrtc: WebRtcSettings | None = None  # None: no calls over WebRTC
    cors_origins: tuple[str, ...] = ()  # pages elsewhere that may call the API; "*": all
    admits_local_pages: bool = False  # lets pages of this machine call it, on any port
    chat_model: str = "auto"  # model of `model: auto` in serve_config.yaml; "auto": by free memory
    free_workspace_id: int | None = None  # the owner's, if no other machine is served


UNNAMED = {"data_dir", "weights_dir", "plan_webhook", "admits_local_pages", "free_workspace_id"}
"""Fields that no variable of the same name sets."""


def misspelt_settings() -> list[tuple[str, str]]:
    """Lists variables whose names are nearly those of settings, such as SIGNUP, each with the name
    of the setting. Short names are left out, as they resemble variables of other programs."""
    named = {each.name.upper() for each in fields(Settings) if "_" in each.name}
    named -= {name.upper() for name in UNNAMED}
    others = sorted(os.environ.keys() - named)
    return [(name, near) for name in others for near in get_close_matches(name, named, 1, 0.88)]


def setting_names() -> set[str]:
    """Returns the variables that are set and configure a start of the service."""
    prefixes = "ANTIPHON_|PLAN_WEBHOOK_|WEBHOOK_|WEBRTC_|WYOMING_"
    others = "CLUSTER_ADDRESS|PROFILE|RAY_DASHBOARD_PORT|VLLM"
    named = "|".join(each.name.upper() for each in fields(Settings))
    pattern = re.compile(rf"(?:{prefixes})\w+|{others}|{named}")
    return set(filter(pattern.fullmatch, os.environ)) - {OWNER, "ANTIPHON_KEY", "ANTIPHON_URL"}


def weights_dir() -> Path:
    """The cache of weights: ANTIPHON_WEIGHTS or ~/.cache/antiphon/weights, outside the tree."""
    override = os.environ.get("ANTIPHON_WEIGHTS")
    if override:
        return environment.home_path("ANTIPHON_WEIGHTS", override)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return environment.home_path("XDG_CACHE_HOME", cache) / "antiphon" / "weights"


def own_catalogue() -> Path:
    """The operator's own catalogue: ANTIPHON_CATALOGUE, or catalogue.yaml in the data folder. It
    adds weights to `configs/catalogue.yaml`, and may be absent. Raises SettingsError."""
    path = os.environ.get("ANTIPHON_CATALOGUE") or str(_data_path() / "catalogue.yaml")
    if not path.endswith(".yaml"):
        raise SettingsError(f"ANTIPHON_CATALOGUE is {path!r}, but must end in .yaml")
    return environment.home_path("ANTIPHON_CATALOGUE", path).resolve()


def weights_mirror() -> str | None:
    """ANTIPHON_MIRROR: the address or absolute path of a folder that has weights by their SHA-256.
    Raises SettingsError."""
    text = (os.environ.get("ANTIPHON_MIRROR") or "").rstrip("/")
    if "://" not in text:
        return str(environment.home_path("ANTIPHON_MIRROR", text).resolve()) if text else None
    return environment.public_url("ANTIPHON_MIRROR", text)


def watermark_of() -> WatermarkOf:
    """The setting WATERMARK, on which the required weights depend too. Raises SettingsError."""
    return environment.choice("WATERMARK", get_args(WatermarkOf), "off")


def chat_model() -> str:
    """The setting CHAT_MODEL: a configuration of a chat model, or "auto". Raises SettingsError."""
    models = (f"llm/{path.stem}" for path in Path(__file__).parent.glob("llm/*.yaml"))
    return environment.choice("CHAT_MODEL", ("auto", *sorted(models)), "auto")


def load_settings_of_service(*, new_secrets: bool | None = None) -> Settings:
    """Reads the environment for a command, with the addresses of the service that uses the data
    folder where the environment has none. Raises SettingsError."""
    running.find(_data_dir(new=False))
    return load_settings(new=False, new_secrets=new_secrets)


def local_service() -> str | None:
    """Finds the URL of the service that uses the data folder of this environment, if it runs on
    this machine."""
    return running.find(_data_path())


def load_settings(*, new: bool = True, new_secrets: bool | None = None) -> Settings:
    """Reads the environment; creates the data folder and, on the first start, its secrets.

    Unless `new`, the database in the data folder must exist if no other is configured. Secrets are
    created only for a `new` database, or if `new_secrets` says so. A database elsewhere may already
    be used with other secrets, so new ones are stored later, by `keep_secrets`. Raises
    SettingsError, which names the variable.
    """
    data_dir = _data_dir(new=new)
    if new_secrets is None:
        new_secrets = new and not _has_database(data_dir)
    host = environment.host("HOST")
    port = environment.port("PORT", 8000)
    is_local = environment.is_loopback(host)
    plan_changes: PlanChanges = environment.choice(
        "PLAN_CHANGES", get_args(PlanChanges), "self" if is_local else "operator"
    )
    return Settings(
        host=host,
        port=port,
        data_dir=data_dir,
        database_url=environment.database_url("DATABASE_URL", sqlite_url(data_dir / DATABASE)),
        weights_dir=weights_dir(),
        secrets=_load_secrets(data_dir / SECRETS, create=new_secrets),
        redis_url=environment.redis_url("REDIS_URL"),
        trusted_proxies=_peer_networks(environment.networks("TRUSTED_PROXIES")),
        storage_url=environment.storage_url("STORAGE_URL", data_dir / "files"),
        storage_shared=environment.choice("STORAGE_SHARED", ("off", "on"), "off") == "on",
        free_space_mb=environment.megabytes("FREE_SPACE_MB"),
        public_url=environment.public_url(
            "PUBLIC_URL", environment.address_on_this_machine(host, port)
        ),
        webhooks=WebhookSettings(
            allowed_networks=environment.networks("WEBHOOK_NETWORKS"),
            time_scale=environment.factor("WEBHOOK_TIME_SCALE"),
            ca_file=environment.file("WEBHOOK_CA_FILE"),
        ),
        watermark=watermark_of(),
        require_consent=environment.choice("REQUIRE_CONSENT", get_args(ConsentNeeded), "off"),
        metrics_token=environment.token("METRICS_TOKEN"),
        operator_token=environment.token("OPERATOR_TOKEN", 32),
        wyoming=_wyoming(),
        webrtc=_webrtc(host),
        cors_origins=environment.origins("CORS_ORIGINS"),
        admits_local_pages=environment.serves_only_this_machine(host),
        chat_model=chat_model(),
        sign_up=environment.choice(
            "SIGN_UP", get_args(SignUpPolicy), "open" if is_local else "closed"
        ),
        plan_changes=plan_changes,
        plan_webhook=_plan_webhook() if plan_changes == "webhook" else None,
        free_workspace_id=_free_workspace_id(host),
    )


def _free_workspace_id(host: str) -> int | None:
    text = os.environ.get(OWNER, "")
    return int(text) if environment.serves_only_this_machine(host) and text.isdecimal() else None


def _wyoming() -> WyomingSettings | None:
    environment.token("WYOMING_KEY")  # refused if malformed, even without WYOMING_PORT
    address = environment.wyoming_address()
    announces = environment.choice("WYOMING_ZEROCONF", ("off", "on"), "off") == "on"
    if address is None:
        return None
    key = environment.wyoming_key()
    if announces and environment.is_loopback(address[0]):
        raise SettingsError("WYOMING_ZEROCONF=on needs a WYOMING_HOST that others can reach")
    return WyomingSettings(*address, key, announces)


def _webrtc(host: str) -> WebRtcSettings | None:
    if environment.choice("WEBRTC", ("on", "off"), "on") == "off":
        return None
    addresses = environment.announced_addresses("WEBRTC_ADDRESSES")
    with suppress(ValueError):  # HOST is a name: all addresses
        if not addresses and not environment.listens_everywhere(host):
            own = str(ip_address(host))
            addresses = ((own, own),)
    return WebRtcSettings(
        addresses,
        environment.udp_ports("WEBRTC_PORTS"),
        environment.ice_servers("WEBRTC_ICE_SERVERS"),
        environment.token("WEBRTC_TURN_USERNAME"),
        environment.token("WEBRTC_TURN_PASSWORD"),
    )


def _plan_webhook() -> PlanWebhook:
    url, secret = os.environ.get("PLAN_WEBHOOK_URL", ""), os.environ.get("PLAN_WEBHOOK_SECRET", "")
    if not re.fullmatch(r"https?://[^\s/@#?]+([/?][^\s#]*)?", url):
        raise SettingsError("PLAN_CHANGES=webhook needs PLAN_WEBHOOK_URL, an http(s) address")
    if not re.fullmatch(r"whsec_(?=(.{4})*$)[A-Za-z0-9+/]{32,86}={0,2}", secret):
        raise SettingsError(
            "PLAN_CHANGES=webhook needs PLAN_WEBHOOK_SECRET, whsec_ and base64 of 24 to 64 bytes"
        )
    return PlanWebhook(url, secret)


def _own_folder() -> Path:
    """Returns `data/` of a checkout, or a folder of the user if the package is installed."""
    if (PROJECT_DIR / "pyproject.toml").exists():
        return PROJECT_DIR / "data"
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "antiphon"


def _data_path() -> Path:
    path = os.environ.get("ANTIPHON_DATA") or str(_own_folder())
    return environment.home_path("ANTIPHON_DATA", path).resolve()


def _data_dir(*, new: bool) -> Path:
    path = _data_path()
    if not new and not os.environ.get("DATABASE_URL") and not _has_database(path):
        raise SettingsError(
            f"ANTIPHON_DATA: there is no database in {str(path)!r}; set the variables as "
            "the service has them"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"ANTIPHON_DATA: cannot make the folder {str(path)!r}: {error.strerror}"
        raise SettingsError(message) from None
    check_private(path, "ANTIPHON_DATA")
    return path


def _has_database(data_dir: Path) -> bool:
    """Whether the settings use a database in the data folder, and it exists."""
    return not os.environ.get("DATABASE_URL") and (data_dir / DATABASE).exists()


def _peer_networks(networks: tuple[IPv4Network | IPv6Network, ...]) -> tuple[str, ...]:
    """Returns the proxies' networks as the gateway sees them: an IPv6 socket maps IPv4
    addresses."""
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in networks
        if network.version == 4
    ]
    return (*map(str, networks), *mapped)


def keep_secrets(settings: Settings) -> None:
    """Stores generated secrets, once it is certain that the database has no others. If another
    process has stored different ones meanwhile, later starts refuse them."""
    if settings.secrets.generated is not None:
        _stored_secrets(settings.data_dir / SECRETS, settings.secrets.generated, keep=True)


def _load_secrets(path: Path, *, create: bool) -> Secrets:
    """Loads each secret from its variable, or from a file that only its owner may read. Missing
    secrets are added to the file only if `create`."""
    values = {
        name: os.environ[variable]
        for name, variable in VARIABLES_OF_SECRETS.items()
        if os.environ.get(variable)
    }
    generated = None
    if len(values) < len(VARIABLES_OF_SECRETS):
        is_elsewhere = bool(os.environ.get("DATABASE_URL"))
        try:
            fresh = _fresh_secrets() if create else {}
            stored = _stored_secrets(path, fresh, keep=not is_elsewhere)
        except OSError as error:
            message = f"ANTIPHON_DATA: cannot keep secrets in {str(path)!r}: {error.strerror}"
            raise SettingsError(message) from None
        if missing := VARIABLES_OF_SECRETS.keys() - stored.keys() - values.keys():
            names = ", ".join(sorted(VARIABLES_OF_SECRETS[name] for name in missing))
            raise SettingsError(
                f"{names}: neither set nor in {str(path)!r}; give the secrets of the database, or,"
                " if they are lost, run `antiphon accept-secrets`"
            )
        values = {name: values.get(name) or stored[name] for name in VARIABLES_OF_SECRETS}
        generated = stored if create and is_elsewhere else None
    token_keys = tuple(values.pop("token_key").split(","))
    if any(len(key.encode()) < 32 for key in token_keys):
        raise SettingsError(
            "ANTIPHON_TOKEN_KEY needs at least 32 bytes in each key; commas join several keys"
        )
    for name, value in values.items():
        if len(value.encode()) < 32:
            raise SettingsError(f"{VARIABLES_OF_SECRETS[name]} needs at least 32 bytes")
    data_keys = tuple(values.pop("data_keys").split(","))
    if not all(map(_is_data_key, data_keys)):
        raise SettingsError(
            "ANTIPHON_DATA_KEYS must be 32 bytes in base64; several keys are joined by commas"
        )
    return Secrets(**values, token_keys=token_keys, data_keys=data_keys, generated=generated)


def _is_data_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except ValueError:
        return False


VARIABLES_OF_SECRETS = {
    "token_key": "ANTIPHON_TOKEN_KEY",
    "api_key_pepper": "ANTIPHON_KEY_PEPPER",
    "url_key": "ANTIPHON_URL_KEY",
    "data_keys": "ANTIPHON_DATA_KEYS",
}


def _fresh_secrets() -> dict[str, str]:
    fresh = {name: secrets.token_urlsafe(48) for name in VARIABLES_OF_SECRETS}
    fresh["data_keys"] = base64.b64encode(secrets.token_bytes(32)).decode()
    return fresh


def _stored_secrets(path: Path, fresh: dict[str, str], *, keep: bool) -> dict[str, str]:
    """Returns the secrets in the file, completed with `fresh` ones, which `keep` stores. A file
    lock makes processes that start together read the same secrets."""
    with open(path.with_suffix(".lock"), "w", opener=partial(os.open, mode=0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored: dict[str, str] = {}
        if path.exists():
            if path.stat().st_mode & 0o077:
                raise SettingsError(f"{str(path)!r} may be read by others; run chmod 600 on it")
            stored = _parse(path)
        complete = fresh | stored
        if keep and complete != stored:
            draft = path.with_name(f".{path.name}.new")
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(complete))
            os.replace(draft, path)
    return complete


def _parse(path: Path) -> dict[str, str]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        stored = None
    if isinstance(stored, dict) and all(
        isinstance(value, str) and value for value in stored.values()
    ):
        return stored
    raise SettingsError(f"{str(path)!r} is damaged; restore it from a backup")
