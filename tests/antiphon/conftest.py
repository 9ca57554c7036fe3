"""The servers of the tests of sockets."""

from tests.api.sockets.conftest import fake, plain, server, stt_server

__all__ = ["fake", "plain", "server", "stt_server"]
