"""Where webhooks may be sent: public addresses, and networks that the operator allows. This
prevents server-side request forgery (SSRF): requests of the service into its own network."""

import re
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

from pydantic import TypeAdapter
from yarl import URL

from configs.load import load_yaml
from pipelines.errors import InvalidUrl

Network = IPv4Network | IPv6Network

MAX_URL_CHARACTERS = 2048

_CLOSED = load_yaml(
    TypeAdapter(tuple[Network, ...]), str(Path(__file__).with_name("closed_networks.yaml"))
)
_OPEN_IPV6 = ip_network("2000::/3")

_LAST_LABEL_IS_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)$")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_INSIDE = {"localhost", "local", "internal", "intranet", "lan"}
_FORBIDDEN = re.compile(r"[\s\\]")


def may_dial(address: IPv4Address | IPv6Address, allowed: Sequence[Network]) -> bool:
    """Whether a connection to this resolved address is allowed."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed):
        return True
    is_open = isinstance(address, IPv4Address) or address in _OPEN_IPV6
    return is_open and not any(address in network for network in _CLOSED)


def check_url(text: str, own_hosts: Collection[str], allowed: Sequence[Network]) -> None:
    """Check the URL of a webhook. Raises InvalidUrl. The name need not resolve yet. The library of
    the HTTP client parses the URL here too, so that both read it alike."""
    if len(text) > MAX_URL_CHARACTERS:
        raise InvalidUrl(f"url: must have at most {MAX_URL_CHARACTERS} characters")
    if _FORBIDDEN.search(text) or not text.isprintable():
        raise InvalidUrl("url: must have no spaces, control characters or backslashes")
    try:
        url = URL(text)
        host, port = (url.raw_host or "").lower().removesuffix("."), url.port
    except ValueError:
        raise InvalidUrl("url: is not a URL") from None
    if url.scheme != "https" or not host or port is None:
        raise InvalidUrl("url: must begin with https:// and name a host")
    # In the text: the parsed URL hides an empty user or fragment.
    if "@" in re.split("[/?#]", text.split("//", 1)[1], maxsplit=1)[0]:
        raise InvalidUrl("url: must have no user name or password")
    if "#" in text:
        raise InvalidUrl("url: must have no fragment")
    if port < 1024 and port != 443:
        raise InvalidUrl("url: the port must be 443, or 1024 and above")
    _check_host(host, own_hosts, allowed)


def _check_host(host: str, own_hosts: Collection[str], allowed: Sequence[Network]) -> None:
    try:
        address = ip_address(host)
    except ValueError:
        pass
    else:
        if not any(address in network for network in allowed):
            raise InvalidUrl("url: must name a host, not an address")
        return
    if _LAST_LABEL_IS_NUMBER.search(host):
        raise InvalidUrl("url: must name a host, not an address")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise InvalidUrl("url: must name a host")
    if host in own_hosts:
        raise InvalidUrl("url: must not be this service itself")
    inside = "." not in host or host.rpartition(".")[2] in _INSIDE or host.endswith(".home.arpa")
    if inside and not allowed:
        message = "url: must name a host of the public internet; an operator allows others, for "
        raise InvalidUrl(f"{message}development, with WEBHOOK_NETWORKS")
