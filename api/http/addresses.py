"""The addresses of clients, as limits count them."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.requests import HTTPConnection


def peer_address(connection: HTTPConnection) -> IPv4Address | IPv6Address | None:
    """The client's address; None for a Unix socket, or a test's name."""
    return parse_address(connection.client.host if connection.client else "")


@lru_cache(1024)
def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address, IPv4 where it is mapped to IPv6; None for anything else."""
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


@lru_cache(1024)
def block_of(address: str) -> str:
    """The /8 of an IPv4 address, or the /16 of an IPv6 one or of a /64 network, of which some 250
    are in use; `address` itself if it is neither."""
    parsed = parse_address(address.partition("/")[0])
    if parsed is None:
        return address
    return str(ip_network(f"{parsed}/{8 if parsed.version == 4 else 16}", strict=False))
