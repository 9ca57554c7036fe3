"""Removes the reasoning of language models, between tags such as `<think>`, from spoken text.

A tag after a backtick or a quotation mark is only quoted, and begins no reasoning. Reasoning
without an end tag lasts to the end of the text."""

import re

MOST_SPACES = 40  # longest run in a tag: a text of spaces must not be held back as part of one
_NAMES = ("think", "thinking", "thought", "reasoning")
_NAME = "|".join(_NAMES)
# An attribute needs its value: "<think about it>" is a text.
_VALUE = r"""(?:"[^"<>]{0,99}"|'[^'<>]{0,99}'|[^\s<>"'/]{1,99})"""
_ATTRIBUTE = rf"\s{{1,9}}[\w-]{{1,40}}\s{{0,9}}=\s{{0,9}}{_VALUE}"
_END = rf"\s{{0,{MOST_SPACES}}}>"
_OPENING = rf"""(?<![`"'“‘«„])<(?P<reasoning>{_NAME})(?:{_ATTRIBUTE}){{0,3}}{_END}"""
_STRAY = rf"""(?<![`"'“‘«„])(?P<stray><(?:/(?:{_NAME})|(?:{_NAME})\s{{0,9}}/){_END})"""
BLOCK = rf"(?is:{_OPENING}.*?(?:</(?P=reasoning){_END}|\Z)|{_STRAY})"
"""The pattern of reasoning between tags, or of an end tag alone. The group `reasoning` is the name
of the tag; the group `stray` is the end tag alone."""

_TAG = re.compile(rf"(?i:{_OPENING}|{_STRAY})")
_STARTS = "|".join({name[:size] for name in _NAMES for size in range(1, len(name) + 1)})
_HALF_TAG = re.compile(
    rf"(?i:<(?:/?(?:{_STARTS})?|(?:{_NAME})[\s/][^<>]{{0,200}}|/(?:{_NAME})\s{{1,{MOST_SPACES}}}))\Z"
)
_LONGEST_END = len("</reasoning") + MOST_SPACES + 1  # characters


class ReasoningFilter:
    """Removes the reasoning from a text that arrives in pieces."""

    def __init__(self) -> None:
        self._before = ""  # the last character passed on
        self._held = ""  # text that may become a tag; in reasoning, its end tag
        self._name = ""  # name of the tag whose reasoning is not over

    def feed(self, text: str) -> str:
        """Return the next part of the text that is certainly outside of reasoning."""
        whole = self._before + self._held + text
        place = len(self._before)
        pieces: list[str] = []
        while True:
            if self._name:
                end = re.compile(rf"(?i:</{self._name}{_END})").search(whole, place)
                if end is None:
                    self._held = whole[max(place, len(whole) - _LONGEST_END) :]
                    break
                place = end.end()
                self._name = ""
            tag = _TAG.search(whole, place)
            outside = tag or _HALF_TAG.search(whole, place)
            until = outside.start() if outside else len(whole)
            pieces.append(whole[place:until])
            if tag is None:
                self._held = whole[until:]
                break
            place = tag.end()
            self._name = tag["reasoning"] or ""
        passed = "".join(pieces)
        self._before = (self._before + passed)[-1:]
        return passed

    def finish(self) -> str:
        """Return the text held back at the end, unless it is in reasoning."""
        held = "" if self._name else self._held
        self._held = ""
        return held
