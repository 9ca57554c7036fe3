"""The servers of the socket tests, for AssemblyAI's paths."""

from tests.api.deepgram.conftest import detector, fake, plain, server, shared_server, turn_server

__all__ = ["detector", "fake", "plain", "server", "shared_server", "turn_server"]
