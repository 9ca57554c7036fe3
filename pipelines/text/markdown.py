"""Removes Markdown (https://spec.commonmark.org/) and emoji from a text that is to be spoken; the
words stay."""

import re

from pipelines.text.segmentation import clean

COMMENT = re.compile(r"<!--(?:[^<-]|<(?!!--)|-(?!->))*+-->")  # of HTML
# Lines of nothing but tags of HTML; `<break/>` is a pause.
TAGS = re.compile(
    r"^[ \t]*+(?:</?(?!break\b)[A-Za-z][\w-]{0,30}(?:\s[^<>\n]*+)?/?>[ \t]*+)++$", re.MULTILINE
)
FENCE = re.compile(r"^[ \t]*+(?:`{3,}+|~{3,}+)[^`\n]*$", re.MULTILINE)  # may name a language
# An address may have brackets in pairs, as in "(https://example.com/Mars_(planet))".
LINK = re.compile(r"\[([^\[\]\n]{0,500})\]\((?:[^()\n]++|\([^()\n]*+\))*+\)")
# "[the page][1]", but not "grid[row][1]", and the lines that define such references
REFERENCE = re.compile(r"(?<![\w\])])\[((?:[^\[\]\n]{2,500})?)\]\[[^\[\]\n]{0,200}\](?![\w\[])")
DEFINITION = re.compile(
    r"^[ \t]*+\[(?!\^)[^\[\]\n]{1,200}\]:[ \t]*+"
    r"(?=\S{0,500}(?:/|\.\w)|#|<|mailto:)(?:<[^<>\n]*+>|\S++)"
    r"""(?:[ \t]++(?:"[^"\n]*+"|'[^'\n]*+'|\([^()\n]*+\)))?[ \t]*+$""",
    re.MULTILINE,
)
# Emphasis that touches letters on the other side too: "**Haupt**bahnhof", "**서울**은"
PART_OF_WORD = re.compile(
    r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]{1,200})(?<!\s)\1(?=[^\W\d_])"
    r"|(?<=[^\W\d_])(\*{2,3})(?=[^\W\d_])([^*\n]{2,200})(?<!\s)\3(?![\d*])"
)

# No model may hold up the process: each rule reads a place a bounded number of times.
_RULES = (
    (COMMENT, ""),
    (FENCE, ""),
    (TAGS, ""),
    (DEFINITION, ""),
    (re.compile(r"```[\w+-]*$", re.MULTILINE), ""),  # after other text
    (re.compile(rf"!{LINK.pattern}"), r"\1"),
    (LINK, r"\1"),
    (re.compile(rf"!?{REFERENCE.pattern}"), r"\1"),
    (re.compile(r"^[ \t]*+(?:[-*_=] *+){3,}+$", re.MULTILINE), ""),  # rules between parts
    (re.compile(r"^[ \t|]*+(?:[-:]{3,}+[ |]*+)++$", re.MULTILINE), ""),  # below a table's head
    (re.compile(r"^[ \t]*(?:#{1,6}|[-*+•>])[ \t]+", re.MULTILINE), ""),
    (re.compile(r"^[ \t]*\|[ \t]*|(?<![ \t])[ \t]*+\|[ \t]*$", re.MULTILINE), ""),
    (re.compile(r"(?<![ \t])[ \t]++\|[ \t]+"), ", "),  # cells
    (re.compile(r"~~|`"), ""),
    (PART_OF_WORD, r"\2\4"),
    # Emphasis touches a word on one side only: not so in "2 * 3", "x**2" and "max_tokens".
    (re.compile(r"(?<![\w*])\*+(?=[^\s*])|(?<=[^\s*])\*+(?![\w*])"), ""),
    # A part of an emphasis, in scripts that write no spaces around it
    (re.compile(r"(?<=[\u3040-\ud7ff])\*{2,3}(?!\*)|(?<!\*)\*{2,3}(?=[\u3040-\ud7ff])"), ""),
    (re.compile(r"(?<!\w)_+(?=[^\W_])|(?<=[^\W_])_+(?!\w)"), ""),
    (re.compile(r"[ \t]{2,}"), " "),
)


def without_markdown(text: str) -> str:
    """Return `text` as read aloud: no emphasis, headings, list marks, links, code or emoji."""
    text = text if text.isascii() else clean(text)
    for rule, replacement in _RULES:
        text = rule.sub(replacement, text)
    return text
