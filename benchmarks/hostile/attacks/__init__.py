"""The attacks; importing this package registers them."""

from benchmarks.hostile.attacks import accounts, bodies, connections, models, sockets

__all__ = ["accounts", "bodies", "connections", "models", "sockets"]
