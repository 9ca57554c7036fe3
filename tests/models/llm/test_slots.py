import threading
from contextlib import ExitStack
from typing import Any

import pytest

from models.errors import EngineOverloaded
from models.llm.base import ChatMessage, GenerationRequest
from models.llm.slots import Slots


def chat(owner: str, *texts: str, **more: Any) -> GenerationRequest:
    roles = ("user", "assistant")
    said = (ChatMessage(roles[i % 2], text) for i, text in enumerate(texts))  # type: ignore[arg-type]
    return GenerationRequest(tuple(said), owner=owner, **more)


def use(slots: Slots, request: GenerationRequest) -> tuple[int, bool]:
    with slots.take(request) as slot:
        return slot.index, slot.previous.owner == request.owner


def test_a_continued_chat_reuses_the_slot_with_its_cached_prompt() -> None:
    slots = Slots(3)
    first, _ = use(slots, chat("a", "one"))
    use(slots, chat("a", "other"))
    assert use(slots, chat("a", "one", "yes", "two")) == (first, True)
    assert use(slots, chat("a", "one", "yes", "two", "no", "three")) == (first, True)


def test_new_chats_take_the_least_recently_used_slot() -> None:
    slots = Slots(2)
    assert [use(slots, chat("a", text))[0] for text in ("one", "two", "three", "four")] == [
        0,
        1,
        0,
        1,
    ]


def test_the_cached_prompt_of_a_slot_is_not_reused_for_another_owner() -> None:
    slots = Slots(1)
    assert use(slots, chat("a", "secret")) == (0, False)
    assert use(slots, chat("b", "secret")) == (0, False)
    assert use(slots, chat("b", "secret")) == (0, True)
    assert use(slots, chat("a", "secret")) == (0, False)


def test_equal_messages_of_another_owner_do_not_select_its_slot() -> None:
    slots = Slots(2)
    first, _ = use(slots, chat("a", "secret", "x", "y"))
    assert use(slots, chat("b", "secret", "x", "y")) == (1 - first, False)


def test_a_chat_with_other_tools_does_not_reuse_the_slot() -> None:
    slots = Slots(2)
    first, _ = use(slots, chat("a", "one"))
    assert use(slots, chat("a", "one", "yes", "two", tools=({"type": "function"},)))[0] != first


def test_conversations_that_begin_alike_keep_their_slots_by_their_keys() -> None:
    slots = Slots(2)
    one, other = (chat("a", "the same", cache_key=key) for key in ("one", "other"))
    first, _ = use(slots, one)
    assert use(slots, other)[0] != first
    assert use(slots, one) == (first, True)


def test_a_busy_slot_is_not_taken() -> None:
    slots = Slots(2)
    with ExitStack() as stack:
        first = stack.enter_context(slots.take(chat("a", "one")))
        second = stack.enter_context(slots.take(chat("a", "one")))
        assert {first.index, second.index} == {0, 1}


def test_a_request_waits_for_the_cache_that_its_draft_still_uses() -> None:
    slots, drafted = Slots(2), threading.Event()
    stopped = threading.Event()

    def draft() -> None:
        with slots.take(chat("a", "one", "yes", "tw", is_speculative=True)) as slot:
            taken.append(slot.index)
            drafted.set()
            stopped.wait()

    taken: list[int] = []
    thread = threading.Thread(target=draft)
    thread.start()
    drafted.wait()
    threading.Timer(0.05, stopped.set).start()
    assert use(slots, chat("a", "one", "yes", "two")) == (taken[0], True)
    assert stopped.is_set()
    thread.join()


def test_speculative_work_is_refused_while_an_answer_uses_its_cache() -> None:
    slots = Slots(2)
    with slots.take(chat("a", "one", "yes", "two")):
        with pytest.raises(EngineOverloaded):
            use(slots, chat("a", "one", "yes", "two", "no", "three", is_speculative=True))
        assert use(slots, chat("a", "one", "yes", "two", "no", "three"))[0] == 1
