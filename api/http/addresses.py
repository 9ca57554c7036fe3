"""The addresses of clients, as limits count them."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.requests import HTTPConnection

WIDER = ((56, 4), (48, 16))
"""Lengths of IPv6 prefixes, and how many times the allowance of an address each has."""


def peer_address(connection: HTTPConnection) -> IPv4Address | IPv6Address | None:
    """The client's address; None for a Unix socket, or a test's name."""
    return parse_address(connection.client.host if connection.client else "")


@lru_cache(1024)
def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address, IPv4 where it is mapped to IPv6, without the port that some proxies forward;
    None for anything else."""
    host = host[1:].partition("]")[0] if host.startswith("[") else host
    host = host.partition(":")[0] if host.count(":") == 1 else host
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def client_address(connection: HTTPConnection) -> str:
    """The key of a limit per address."""
    client = connection.client
    return network_of(client.host if client else "")


@lru_cache(1024)
def network_of(host: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address; `host` itself if it is neither."""
    address = parse_address(host)
    if address is None or isinstance(address, IPv4Address):
        return str(address or host)
    return str(ip_network((int(address), 64), strict=False))


@lru_cache(4096)
def networks_of(address: str) -> tuple[tuple[str, int], ...]:
    """The address, as `network_of` gives it, and the networks around it, the widest last; for each
    how many times the allowance of an address it has.

    Providers give one customer an IPv6 /56 or /48 for nothing, which has 256 or 65,536 addresses.
    An IPv4 address has no wider network: the others of its /24 are other customers.
    """
    wider: list[tuple[str, int]] = []
    parsed = parse_address(address.partition("/")[0])
    if isinstance(parsed, IPv6Address):
        for prefix, times in WIDER:
            wider.append((str(ip_network((int(parsed), prefix), strict=False)), times))
    return ((address, 1), *wider)


def widest_network(address: str) -> str:
    """The widest network that one customer may have, for queues that serve customers in turn."""
    return networks_of(address)[-1][0]


@lru_cache(1024)
def block_of(address: str) -> str:
    """The /8 of an IPv4 address, or the /16 of an IPv6 one or of a /64 network, of which some 250
    are in use; `address` itself if it is neither."""
    parsed = parse_address(address.partition("/")[0])
    if parsed is None:
        return address
    return str(ip_network(f"{parsed}/{8 if parsed.version == 4 else 16}", strict=False))
