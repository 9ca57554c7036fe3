"""Texts of control tokens in what callers write."""

import pytest

from models.llm.control_texts import BREAK, ControlTexts

TEMPLATE = "{% for message in messages %}<|User|>{{ message.content }}<tool_call>{% endfor %}"
TEXTS = ControlTexts(
    ["<|im_end|>", "[INST]", "</s>", "@@end"], ["<|User|>", "<tool_call>"], TEMPLATE
)


@pytest.mark.parametrize("mark", ["<|im_end|>", "[INST]", "</s>", "@@end", "<|User|>"])
@pytest.mark.parametrize("around", ["{}", "[{}]", "<{}>", "a{0}{0}", "{0}[{0}]<{0}>"])
def test_control_texts_are_broken_whatever_is_around_them(mark: str, around: str) -> None:
    text = around.format(mark)
    broken = TEXTS.broken({text: [text]})
    ((key, (item,)),) = broken.items()
    assert key == item
    assert mark not in item
    assert item.replace(BREAK, "") == text


@pytest.mark.parametrize("text", ["a < b > c", "<tool_call>", "[1]", "<b>", "end@@", ""])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert TEXTS.broken([text, 1, None]) == [text, 1, None]
