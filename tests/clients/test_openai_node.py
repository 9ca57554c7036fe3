"""Chat with the official Node client of OpenAI."""

import pytest

from tests.api.chat_server import ChatServer
from tests.clients.node_clients import NodeClients

TEXT = "héllo 😀 big world"


@pytest.mark.parametrize("prefix", ["/openai/v1", pytest.param("/v1", marks=pytest.mark.slow)])
def test_the_node_client_reads_chat_answers_in_every_style(
    server: ChatServer, node_clients: NodeClients, prefix: str
) -> None:
    seen = node_clients.run("openai_node.mjs", server.url + prefix, server.token, TEXT)
    assert ("responses" in seen) == prefix.startswith("/openai")
    assert len(seen.pop("chatId")) == 36
    assert "the replica died" in seen.pop("broken")
    responses = {"whole": TEXT, "streamed": TEXT, "last": TEXT}
    assert seen.pop("responses", responses) == responses
    assert seen == {
        "whole": TEXT,
        "loop": TEXT,
        "helperDeltas": TEXT,
        "helper": TEXT,
        "finish": "stop",
        "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        "wrong": {
            "name": "BadRequestError",
            "code": "validation_error",
            "param": "temperature",
        },
    }
