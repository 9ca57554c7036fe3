"""Correction by regular expressions with inflected replacements, from the configuration."""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from configs.schema.correction import CorrectionWords, Pattern
from pipelines.correction.edits import Edit, Kind
from pipelines.correction.inflection import InflectedForms

_REFERENCE = re.compile(r"\\(\d)(?:→([a-z]+))?")
_LAST_WORD = re.compile(r"[\w']+$")
_LOOKBACK = 24  # characters that `unless` may look at


class Patterns:
    """All patterns of a configuration, compiled."""

    def __init__(self, words: CorrectionWords) -> None:
        self._forms = InflectedForms(words.verbs)
        groups = {**words.groups, "adjective": "|".join(words.adjectives)}
        self._rules = [_Rule(pattern, groups) for pattern in words.patterns]

    def edits(self, text: str) -> Iterator[Edit]:
        """Edits in the order of the patterns; those of different patterns may overlap."""
        for rule in self._rules:
            yield from rule.edits(text, self._forms)


class _Rule:
    def __init__(self, pattern: Pattern, groups: Mapping[str, str]) -> None:
        self._find = re.compile(
            r"(?<![\w'’])(?:" + _filled(pattern.find, groups) + ")", re.I | re.M
        )
        unless = _filled(pattern.unless, groups)
        self._unless = re.compile(f"(?:{unless}) *$", re.I) if unless else None
        self._put = pattern.put
        self._kind: Kind = pattern.kind

    def edits(self, text: str, forms: InflectedForms) -> Iterator[Edit]:
        for match in self._find.finditer(text):
            before = text[max(0, match.start() - _LOOKBACK) : match.start()]
            if self._unless is not None and self._unless.search(before):
                continue
            try:
                put = _REFERENCE.sub(partial(_expand, match, forms), self._put)
            except _NoForm:
                continue
            put = like(match.group(), put)
            if put != match.group() and not (
                self._kind == "capitalization" and match.group().isupper()
            ):
                yield narrowed(Edit(match.start(), match.end(), put, self._kind), text)


class _NoForm(Exception):
    """A word has no such inflected form, so the pattern does not apply."""


def _filled(pattern: str, groups: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda name: groups[name.group(1)], pattern)


def _expand(match: re.Match[str], forms: InflectedForms, reference: re.Match[str]) -> str:
    text = match.group(int(reference.group(1))) or ""
    operation = reference.group(2)
    if operation is None:
        return text
    word = _LAST_WORD.search(text)
    form = forms.operations[operation](word.group().lower()) if word else None
    if word is None or form is None:
        raise _NoForm
    return text[: word.start()] + like(word.group(), form)


def like(model: str, text: str) -> str:
    """`text` begun with a capital if `model` begins with one."""
    starts = model[:1].isupper() and model != "I" and not model.startswith("I'")
    return text[:1].upper() + text[1:] if starts else text


def narrowed(edit: Edit, text: str) -> Edit:
    """An edit of `text` without the equal words at both ends."""
    old, new = _words(text[edit.start : edit.end]), _words(edit.replacement)
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    start = edit.start + sum(map(len, old[:front]))
    end = edit.end - sum(map(len, old[len(old) - back :]))
    return Edit(start, end, "".join(new[front : len(new) - back]), edit.kind)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[\w'’]+|[^\w\s]", text)
