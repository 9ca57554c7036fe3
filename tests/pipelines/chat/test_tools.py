"""Tool calls in the history of a chat."""

from typing import Any

import pytest

from models.llm.base import ChatMessage
from pipelines.chat.history import check_results, continued, estimate_tokens, most_tokens
from pipelines.errors import InvalidRequest


def called(call_id: str, arguments: str = "{}") -> ChatMessage:
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return ChatMessage("assistant", "", {"tool_calls": calls})


def result(call_id: str, text: str = "sunny") -> ChatMessage:
    return ChatMessage("tool", text, {"tool_call_id": call_id})


HISTORY = (
    ChatMessage("system", "Be kind."),
    ChatMessage("user", "old " * 100),
    ChatMessage("assistant", "older " * 100),
    ChatMessage("user", "The weather?"),
    called("a"),
)


def test_a_tool_result_keeps_its_call_and_question_without_budget() -> None:
    prompt = continued(HISTORY, (result("a"),), 0)
    assert [message.role for message in prompt] == ["system", "user", "assistant", "tool"]
    assert prompt[1].content == "The weather?"
    assert continued(HISTORY, (result("a"),), None) == (*HISTORY, result("a"))


def test_a_tool_result_answers_calls_of_history_or_request() -> None:
    check_results(HISTORY, (result("a"),))
    check_results((), (ChatMessage("user", "hi"), called("b"), result("b")))


@pytest.mark.parametrize(
    "said", [(result("unknown"),), (result("b"), called("b")), (ChatMessage("tool", "sunny"),)]
)
def test_a_tool_result_without_its_call_is_refused(said: tuple[ChatMessage, ...]) -> None:
    with pytest.raises(InvalidRequest, match="tool_call_id"):
        check_results(HISTORY, said)


def test_token_estimates_include_tool_calls_and_definitions() -> None:
    long = called("a", '{"text": "' + "x" * 3000 + '"}')
    assert estimate_tokens([long]) > 1000
    assert most_tokens([long]) > 3000
    tools: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f" * 3000}}]
    assert most_tokens([long], tools) > 6000
