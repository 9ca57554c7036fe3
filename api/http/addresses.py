"""The addresses of clients, as limits count them."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from configs.environment import is_loopback

WIDER = ((56, 4), (48, 16))
"""Wider IPv6 networks: prefix length (bits), and allowance as a multiple of one address's."""

_FORWARDED = ("forwarded", "via", "x-forwarded-", "x-real-ip")  # prefixes of proxies' headers


def is_direct(connection: HTTPConnection) -> bool:
    """Whether the request comes from a program on this machine, not through a recognised proxy.

    A proxy or tunnel on the machine has a loopback address too. It is recognised by a forwarding
    header, by a `Host` that is no loopback name, by HTTP/1.0 (the default of nginx's `proxy_pass`
    before 1.29.7), or by `Connection: upgrade` of a request that opens no WebSocket. A proxy that
    shows none of these is not recognised, such as nginx 1.29.7 and later with a plain `proxy_pass`:
    PUBLIC_URL declares such a proxy. A page of another site whose name resolves to this machine
    (DNS rebinding) is recognised by its `Host`.
    """
    sees_clients = getattr(connection.app.state, "sees_clients", False)
    client = connection.client
    peer = parse_address(client.host) if client and sees_clients else None
    upgrades = "upgrade" in connection.headers.get("connection", "").lower()
    return (
        peer is not None
        and peer.is_loopback
        and not any(name.startswith(_FORWARDED) for name in connection.headers)
        and not (upgrades and connection.scope["type"] == "http")
        and connection.scope["http_version"] != "1.0"
        and is_loopback(host_of(f"//{connection.headers.get('host', '')}"))
    )


def host_of(url: str) -> str:
    """Returns the host of a URL; empty if the URL is invalid."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


@lru_cache(1024)
def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Parses an address; None if it is invalid. Drops a port, and unmaps IPv4 from IPv6."""
    host = host[1:].partition("]")[0] if host.startswith("[") else host
    host = host.partition(":")[0] if host.count(":") == 1 else host
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def client_address(connection: HTTPConnection) -> str:
    """Returns the client's network (`network_of`), by which limits count its requests."""
    client = connection.client
    return network_of(client.host if client else "")


@lru_cache(1024)
def network_of(host: str) -> str:
    """Returns an IPv4 address, or the /64 network of an IPv6 address; else `host` itself."""
    address = parse_address(host)
    if address is None or isinstance(address, IPv4Address):
        return str(address or host)
    return str(ip_network((int(address), 64), strict=False))


@lru_cache(4096)
def networks_of(address: str) -> tuple[tuple[str, int], ...]:
    """Returns the networks around an address, narrowest first, each with its allowance as a
    multiple of the address's own. Providers give a customer an IPv6 /56 or /48 at no charge, with
    256 or 65,536 /64 networks. An IPv4 address has no wider network: others own the rest of its
    /24."""
    parsed = parse_address(address.partition("/")[0])
    if not isinstance(parsed, IPv6Address):
        return ((address, 1),)
    wider = [(str(ip_network((int(parsed), bits), strict=False)), times) for bits, times in WIDER]
    return ((address, 1), *wider)


def widest_network(address: str) -> str:
    """Returns the widest network of one customer, for queues that serve customers in turn."""
    return networks_of(address)[-1][0]


@lru_cache(1024)
def block_of(address: str) -> str:
    """Returns the /8 of an IPv4 address, the /16 of an IPv6 address or network, else `address`."""
    parsed = parse_address(address.partition("/")[0])
    if parsed is None:
        return address
    return str(ip_network(f"{parsed}/{8 if parsed.version == 4 else 16}", strict=False))
