"""Removes Markdown and emoji from a text that is to be spoken; the words stay."""

import re

from pipelines.text.segmentation import clean

# No model may hold up the process: each rule reads a place a bounded number of times.
_RULES = (
    (re.compile(r"```[\w+-]*"), ""),  # fences of code
    (re.compile(r"!?\[([^\[\]\n]{0,500})\]\([^)\n]{0,2000}\)"), r"\1"),  # links and images
    (re.compile(r"^[ \t]*+(?:[-*_=] *+){3,}+$", re.MULTILINE), ""),  # rules between parts
    (re.compile(r"^[ \t|]*+(?:[-:]{3,}+[ |]*+)++$", re.MULTILINE), ""),  # below a table's head
    (re.compile(r"^[ \t]*(?:#{1,6}|[-*+•>])[ \t]+", re.MULTILINE), ""),
    (re.compile(r"^[ \t]*\|[ \t]*|(?<![ \t])[ \t]*+\|[ \t]*$", re.MULTILINE), ""),
    (re.compile(r"(?<![ \t])[ \t]++\|[ \t]+"), ", "),  # cells
    (re.compile(r"~~|`"), ""),
    # Emphasis touches a word on one side only: not so in "2 * 3", "x**2" and "max_tokens".
    (re.compile(r"(?<![\w*])\*+(?=[^\s*])|(?<=[^\s*])\*+(?![\w*])"), ""),
    (re.compile(r"(?<!\w)_+(?=[^\W_])|(?<=[^\W_])_+(?!\w)"), ""),
    (re.compile(r"[ \t]{2,}"), " "),
)


def without_markdown(text: str) -> str:
    """Return `text` as read aloud: no emphasis, headings, list marks, links, code or emoji."""
    text = text if text.isascii() else clean(text)
    for rule, replacement in _RULES:
        text = rule.sub(replacement, text)
    return text
