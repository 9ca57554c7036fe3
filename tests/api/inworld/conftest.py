"""The servers of the socket tests, for Inworld's socket."""

from tests.api.sockets.conftest import server, shared_server

__all__ = ["server", "shared_server"]
