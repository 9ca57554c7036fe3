"""The servers of the socket tests, for Cartesia's paths."""

from tests.api.sockets.conftest import fake, plain, server, shared_server, stt_server

__all__ = ["fake", "plain", "server", "shared_server", "stt_server"]
