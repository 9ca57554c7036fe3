"""What is in a conversation, in which order, and what the language model reads of it."""

import pytest

from models.llm.base import ChatMessage
from pipelines.agents import items as module
from pipelines.agents.items import (
    ConversationItems,
    Item,
    ItemNotFound,
    Part,
    as_messages,
    split_turn,
)
from pipelines.errors import InvalidRequest
from pipelines.tts.shaping import TimedWord

SAID = "Well, the answer is forty-two."
WORDS = [
    TimedWord("Well,", 0.0, 0.4, 0, 5),
    TimedWord("the", 0.5, 0.6, 6, 9),
    TimedWord("answer", 0.6, 1.0, 10, 16),
    TimedWord("is", 1.0, 1.2, 17, 19),
    TimedWord("forty-two.", 1.2, 2.0, 20, 30),
]


def message(item_id: str, role: str, text: str) -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    return Item(item_id, "message", role, [Part(kind, text)])  # type: ignore[arg-type]


def spoken(item_id: str = "a") -> Item:
    return Item(item_id, "message", "assistant", [Part("output_audio", SAID, 2000, [*WORDS])])


def test_items_are_ordered_by_the_item_before_them() -> None:
    conversation = ConversationItems()
    for name in "ab":
        conversation.add(message(name, "user", name))
    conversation.add(message("c", "user", "c"), after="a")
    conversation.add(message("d", "user", "d"), after="root")
    assert [item.id for item in conversation] == ["d", "a", "c", "b"]
    assert conversation.previous_id("d") is None and conversation.previous_id("c") == "a"
    conversation.delete("a")
    assert [item.id for item in conversation] == ["d", "c", "b"]
    with pytest.raises(ItemNotFound):
        conversation.add(message("e", "user", "e"), after="a")
    with pytest.raises(InvalidRequest, match="already"):
        conversation.add(message("c", "user", "again"))


def test_a_full_conversation_takes_nothing_until_items_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)
    conversation = ConversationItems()
    conversation.add(message("a", "user", "x" * 8))
    with pytest.raises(InvalidRequest, match="full"):
        conversation.add(message("b", "user", "xxx"))
    conversation.delete("a")
    conversation.add(message("b", "user", "xxx"))


@pytest.mark.parametrize(
    ("end_ms", "heard"),
    [
        (0, ""),
        (150, ""),
        (450, "Well,"),
        (1100, "Well, the answer is"),
        (1500, "Well, the answer is"),
        (2000, SAID),
    ],
)
def test_a_truncated_message_ends_with_the_last_word_that_was_heard(
    end_ms: int, heard: str
) -> None:
    conversation = ConversationItems()
    conversation.add(spoken())
    conversation.truncate("a", 0, end_ms)
    assert conversation.find("a").text == heard
    messages = as_messages(conversation)
    assert messages == ((ChatMessage("assistant", heard),) if heard else ())


def test_without_word_times_messages_are_truncated_by_share() -> None:
    part = Part("output_audio", SAID, 2000)
    part.cut(1000)
    assert part.text and SAID.startswith(part.text + " ") and len(part.text) <= len(SAID) / 2


def test_only_audio_of_the_assistant_that_exists_can_be_truncated() -> None:
    conversation = ConversationItems()
    conversation.add(spoken())
    conversation.add(message("b", "user", "Hi."))
    for item_id, part, end_ms in (("b", 0, 0), ("a", 1, 0), ("a", 0, 2001)):
        with pytest.raises(InvalidRequest):
            conversation.truncate(item_id, part, end_ms)
    with pytest.raises(ItemNotFound):
        conversation.truncate("c", 0, 0)


def test_the_model_reads_calls_with_their_outputs_and_no_empty_messages() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    other = {**call, "id": "y"}
    conversation = [
        message("1", "user", "Now."),
        message("2", "assistant", "One moment."),
        Item("3", "function_call", "assistant", call_id="x", name="f", arguments="{}"),
        Item("4", "function_call", "assistant", call_id="y", name="f"),
        Item("5", "function_call_output", call_id="y", output="2"),
        Item("6", "function_call_output", call_id="z", output="no such call"),
        Item("7", "message", "user", [Part("input_audio", "")]),
        message("8", "user", "Well?"),
    ]
    assert as_messages(conversation) == (
        ChatMessage("user", "Now."),
        ChatMessage("assistant", "One moment.", {"tool_calls": [call, other]}),
        ChatMessage("tool", "2", {"tool_call_id": "y"}),
        ChatMessage("tool", "", {"tool_call_id": "x"}),
        ChatMessage("user", "Well?"),
    )


def test_the_last_turn_is_never_cut_with_the_history() -> None:
    messages = as_messages(
        [
            message("1", "user", "One."),
            message("2", "assistant", "Two."),
            message("3", "user", "Three."),
            Item("4", "function_call", "assistant", call_id="x", name="f"),
            Item("5", "function_call_output", call_id="x", output="4"),
        ]
    )
    history, said = split_turn(messages)
    assert [one.content for one in history] == ["One.", "Two."]
    assert [one.role for one in said] == ["user", "assistant", "tool"]
    assert split_turn(()) == ((), ())
