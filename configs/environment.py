"""Reads environment variables; the error of an invalid value is one sentence with its name."""

import errno
import math
import os
import re
import socket
import stat
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from itertools import product
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import quote, urlsplit

T = TypeVar("T", bound=str)

_CGROUPS = Path("/sys/fs/cgroup")
_CGROUP = Path("/proc/self/cgroup")  # the cgroups of this process
_MEMORY = (  # controller and files of a group, and prefix of its counts, in v2 and in v1
    ("", "memory.max", "memory.current", ""),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
_CPU_MAX = _CGROUPS / "cpu.max"
_TOKEN = re.compile(r"[\x21-\x7e]+")
_DATABASES = ("sqlite", "postgres", "postgresql", "postgresql+psycopg")
# Niceness of models and of work on whole files: a lower priority than requests and live audio.
MODEL_NICENESS = 10
DASHBOARD_PORT = 8265  # Ray's default


class SettingsError(ValueError):
    """A setting is invalid. The message is for the operator and contains no secret."""


def home_path(name: str, text: str) -> Path:
    """The path of a setting, which may begin with `~`. Raises SettingsError."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SettingsError(f"{name}: there is no home folder for {text!r}") from None


def port(name: str, default: int) -> int:
    """Reads a TCP port. Raises SettingsError, as all functions here do."""
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 65535):
        raise SettingsError(f"{name} is {text!r}, but must be a number from 1 to 65535")
    return int(text)


def host(name: str) -> str:
    """Reads the name or address that a server listens on."""
    return os.environ.get(name, "").strip("[]") or "127.0.0.1"


def cluster_address() -> tuple[str, int] | None:
    """Reads CLUSTER_ADDRESS: this machine's address, and the port of its cluster."""
    text = os.environ.get("CLUSTER_ADDRESS") or None
    if text is None:
        return None
    host, _, number = text.rpartition(":") if text.count(":") == 1 else (text, "", "6379")
    try:
        address = IPv4Address(host)
        if not (address.is_unspecified or address.is_loopback) and int(number) in range(1, 65536):
            return host, int(number)
    except ValueError:
        pass
    raise SettingsError(
        f"CLUSTER_ADDRESS is {text!r}, but must be the IPv4 address by which other machines reach"
        " this one, and a port, like 10.0.0.1:6379"
    )


def wyoming_address() -> tuple[str, int] | None:
    """Reads WYOMING_HOST and WYOMING_PORT; None where the port is 0 or not set."""
    if (os.environ.get("WYOMING_PORT") or "0") == "0":
        return None
    return host("WYOMING_HOST"), port("WYOMING_PORT", 0)


def wyoming_key() -> str:
    """Reads WYOMING_KEY, which WYOMING_PORT requires."""
    if (key := token("WYOMING_KEY")) is None:
        raise SettingsError(
            "WYOMING_PORT needs WYOMING_KEY, the API key that pays for all connections: the "
            "protocol has no authentication of its own"
        )
    return key


def networks(name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Reads networks or addresses, separated by commas."""
    texts = filter(None, map(str.strip, os.environ.get(name, "").split(",")))
    try:
        return tuple(map(ip_network, texts))
    except ValueError as error:
        raise SettingsError(f"{name} must be networks, separated by commas: {error}") from None


def udp_ports(name: str) -> tuple[int, int] | None:
    """Reads the first and last port of a range; None when the variable is not set."""
    text = os.environ.get(name) or None
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text, re.ASCII)
    if match and 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        return int(match[1]), int(match[2])
    raise SettingsError(f"{name} is {text!r}, but must be a range of ports like 50000-50999")


def announced_addresses(name: str) -> tuple[tuple[str, str], ...]:
    """Reads addresses of this machine, separated by commas, each with the address that clients are
    given, which is the same unless another follows `=`."""
    texts = filter(None, map(str.strip, os.environ.get(name, "").split(",")))
    try:
        pairs = [text.partition("=") for text in texts]
        addresses = [(ip_address(own), ip_address(announced or own)) for own, _, announced in pairs]
    except ValueError as error:
        raise SettingsError(f"{name} must be addresses, separated by commas: {error}") from None
    if any(own.version != announced.version for own, announced in addresses):
        raise SettingsError(f"{name}: addresses joined by = must both be IPv4, or both IPv6")
    return tuple((str(own), str(announced)) for own, announced in addresses)


def ice_servers(name: str) -> tuple[str, ...]:
    """Reads URLs of at most one STUN server and one TURN server, separated by commas."""
    urls = tuple(filter(None, map(str.strip, os.environ.get(name, "").split(","))))
    host = r"[A-Za-z0-9.-]+(:\d{1,5})?"
    kinds = [re.fullmatch(rf"(stun|turns?):{host}(\?transport=(udp|tcp))?", url) for url in urls]
    schemes = [kind[1].rstrip("s") for kind in kinds if kind]
    if len(schemes) < len(urls) or len(schemes) > len({*schemes}):
        raise SettingsError(
            f"{name} must be the URLs of at most one STUN and one TURN server, separated by a "
            "comma, like stun:stun.example.com:3478,turn:turn.example.com:3478?transport=udp"
        )
    return urls


def origins(name: str) -> tuple[str, ...]:
    """Reads origins of pages, extensions and apps, separated by commas, or `*`."""
    texts = tuple(filter(None, map(str.strip, os.environ.get(name, "").split(","))))
    other = "wss?:|file:|data:|javascript:|http:.*:80$|https:.*:443$"  # browsers never send these
    origin = re.compile(rf"\*|(?!{other})[a-z][a-z0-9+.-]*://[^\s/?#@*A-Z\x7f-\U0010ffff]+")
    if wrong := [text for text in texts if not origin.fullmatch(text)]:
        raise SettingsError(
            f"{name} must be origins that browsers send, such as https://app.example (lower case, "
            "no path, no default port, no ws or file), separated by commas, or *; "
            f"{wrong[0]!r} is not an origin"
        )
    return texts


def factor(name: str) -> float:
    """Reads a number above 0; 1 by default."""
    text = os.environ.get(name) or "1"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise SettingsError(f"{name} is {text!r}, but must be a number above 0")
    return number


def megabytes(name: str) -> int | None:
    """Reads a whole number; None when the variable is not set."""
    text = os.environ.get(name) or None
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise SettingsError(f"{name} is {text!r}, but must be a whole number of megabytes")
    return None if text is None else int(text)


def token(name: str, least: int = 1) -> str | None:
    """Reads a token that fits in a header; None when the variable is not set. An empty token, and
    one shorter than `least`, is an error."""
    text = os.environ.get(name)
    if text is not None and not _TOKEN.fullmatch(text):
        raise SettingsError(f"{name} must be visible ASCII characters without spaces, or unset")
    if text is not None and len(text) < least:
        raise SettingsError(f"{name} needs at least {least} characters")
    return text


def choice(name: str, choices: tuple[T, ...], default: T) -> T:
    """Reads one of several words, case-insensitive."""
    text = (os.environ.get(name) or str(default)).strip().lower()
    for word in choices:
        if text == word:
            return word
    raise SettingsError(f"{name} is {text!r}, but must be one of {', '.join(map(str, choices))}")


def file(name: str) -> str | None:
    """Reads the path of an existing file."""
    text = os.environ.get(name) or None
    if text is not None and not Path(text).is_file():
        raise SettingsError(f"{name} is {text!r}, but that file does not exist")
    return text


def sqlite_url(file: Path) -> str:
    """Makes the URL of a SQLite database; escapes `%` and `?` of the path."""
    return f"sqlite:///{quote(os.fsencode(file), safe=' +/')}"


def database_url(name: str, default: str) -> str:
    """Reads the URL of a SQLite or PostgreSQL database."""
    text = os.environ.get(name) or default
    from sqlalchemy.engine import make_url  # a slow import, needed only here
    from sqlalchemy.exc import ArgumentError

    try:
        if make_url(text).drivername in _DATABASES:
            return text
    except (ArgumentError, ValueError):
        pass  # the message may contain a password
    raise SettingsError(
        f"{name} must be postgresql://user:password@host/database or sqlite:///path"
    )


def redis_url(name: str) -> str | None:
    """Reads a URL in the form that the package `redis` accepts."""
    text = os.environ.get(name) or None
    if text is None:
        return None
    from redis.connection import parse_url  # imports half of the package, which few need

    try:
        parse_url(text)  # type: ignore[no-untyped-call]
    except ValueError:
        raise SettingsError(f"{name} must be redis://host:6379/0, rediss:// or unix://") from None
    return text


def storage_url(name: str, default: Path) -> str:
    """Reads the fsspec URL of a folder, whose package must be installed; paths become absolute."""
    text = os.environ.get(name) or f"file://{default}"
    if "://" not in text:  # absolute, since processes may have different working folders
        path = home_path(name, text).resolve()
        text = f"file://{path}"
    from fsspec import get_filesystem_class

    protocol, _, folder = text.partition("://")
    try:
        get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:  # a package to install, or an unknown protocol
        raise SettingsError(f"{name} begins with {protocol}://: {error}") from None
    if not folder.strip("/") or "::" in folder:  # to fsspec, :: joins file systems
        raise SettingsError(f"{name} is {text!r}, but must name a folder after ://, without ::")
    return text


def public_url(name: str, default: str) -> str:
    """Reads the base URL that clients are given, without a slash at the end."""
    text = (os.environ.get(name) or default).rstrip("/")
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s?#\\]", text):
        raise SettingsError(f"{name} is {text!r}, but must be like https://speech.example.com")
    return text


def cores() -> int:
    """Counts the cores that this process may use, by its affinity and cgroup quota (v2). The
    machine of a container may have more."""
    number = len(os.sched_getaffinity(0))
    try:
        quota, period = _CPU_MAX.read_text().split()
        return max(1, min(number, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such group, or `max` instead of a quota
        return number


def free_bytes() -> int:
    """Returns the memory that processes can still get, in the machine and its cgroups (v2, v1).
    Cached files count as free, also active ones, such as the weights of an earlier start: the
    kernel counts both in MemAvailable."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError):  # no cgroups
        # In a container, the path may be the host's; the container's own cgroup is then the root.
        own = [PurePosixPath(line.split(":/", 1)[1]) for line in _CGROUP.read_text().splitlines()]
        for path, names in product({up for mine in own for up in (mine, *mine.parents)}, _MEMORY):
            folder, limit, used, prefix = names
            with suppress(OSError, ValueError, KeyError):  # no such group, or "max"
                group = _CGROUPS / folder / path
                counts = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
                cached = (counts[f"{prefix}{kind}_file"] for kind in ("inactive", "active"))
                taken = int((group / used).read_text()) - sum(map(int, cached))
                free = min(free, int((group / limit).read_text()) - taken)
    return free


def listen_problem(host: str, number: int) -> str | None:
    """Returns why no server can listen there now; None if one can. Unlike gateways, this tries
    without SO_REUSEPORT, so that another service is detected."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, number), family=family).close()
    except OSError as error:
        return error.strerror
    return None


def bypass_proxies(host: str) -> None:
    """Keeps this process's requests to `host` from a proxy that the environment names."""
    exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if exempt != "*":
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"{exempt},{host}".lstrip(",")


def check_private(folder: Path, variable: str, *, has_code: bool = False) -> None:
    """Raises SettingsError if other users can enter or replace `folder`, or if it is a link. If it
    `has_code`, other users may not own a folder above it either, since they could rename it."""
    try:
        status = folder.lstat()
        trusted = {0, os.geteuid(), Path("/").stat().st_uid}
        # The sticky bit, which /tmp has, keeps users from renaming others' files. A volume of a pod
        # has no such bit, and no other users.
        above = [path.stat() for path in folder.parents if not path.is_mount()]
        is_replaceable = any(each.st_mode & 0o1002 == 0o002 for each in above)
        is_replaceable |= has_code and any(each.st_uid not in trusted for each in above)
    except OSError as error:
        message = f"{variable}: cannot read the folder {str(folder)!r}: {error.strerror}"
        raise SettingsError(message) from None
    mode = status.st_mode
    user = os.geteuid()
    if not stat.S_ISDIR(mode) or status.st_uid != user or mode & 0o077 or is_replaceable:
        raise SettingsError(
            f"{variable}: other users can reach {str(folder)!r} (mode {stat.S_IMODE(mode):o} of"
            f" user {status.st_uid}); it must be a folder of mode 700 of user {user}, not"
            " inside a folder that other users can change"
        )


def check_ports(host: str, number: int) -> None:
    """Raises SettingsError if a server of `make run` cannot listen."""
    addresses = [("PORT", f"HOST and PORT are {host!r} and {number}", host, number)]
    if (gcs := cluster_address()) is not None:  # Ray's GCS listens on all interfaces
        what = f"CLUSTER_ADDRESS has port {gcs[1]}"
        addresses.append(("the port of CLUSTER_ADDRESS", what, "0.0.0.0", gcs[1]))
    if (wyoming := wyoming_address()) is not None:
        wyoming_key()
        what = f"WYOMING_HOST and WYOMING_PORT are {wyoming[0]!r} and {wyoming[1]}"
        addresses.append(("WYOMING_PORT", what, *wyoming))
    dashboard = port("RAY_DASHBOARD_PORT", DASHBOARD_PORT)
    where = gcs[0] if gcs else "127.0.0.1"
    what = f"RAY_DASHBOARD_PORT is {dashboard}"
    addresses.append(("RAY_DASHBOARD_PORT", what, where, dashboard))
    for variable, what, address, number in addresses:
        if problem := listen_problem(address, number):
            is_taken = problem.startswith(os.strerror(errno.EADDRINUSE))
            remedy = f"; set {variable} to a free port" if is_taken else ""
            raise SettingsError(f"{what}, where nothing can listen: {problem}{remedy}")


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine's own."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def serves_only_this_machine(host: str) -> bool:
    """Whether, by its settings, a server on `host` serves only this machine: it listens on the
    loopback, without a proxy or gateways on other machines, and ANTIPHON_ALONE is not off. Raises
    SettingsError."""
    is_allowed = choice("ANTIPHON_ALONE", ("auto", "off"), "auto") == "auto"
    others = ("PUBLIC_URL", "TRUSTED_PROXIES", "CLUSTER_ADDRESS")
    return is_allowed and is_loopback(host) and not any(map(os.environ.get, others))


def listens_everywhere(host: str) -> bool:
    """Whether `host` is a wildcard for all addresses of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def address_on_this_machine(host: str, port: int) -> str:
    """Makes the URL by which this machine reaches a server that listens on `host`."""
    if listens_everywhere(host):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


if __name__ == "__main__":  # `make run` calls it before packages are installed
    try:
        check_ports(host("HOST"), port("PORT", 8000))
    except SettingsError as error:
        sys.exit(str(error))
