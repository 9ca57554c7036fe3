"""Corrects by regular expressions of the configuration, with inflected replacements. Inflection
covers English verbs, and a few nouns and adjectives."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os.path import commonprefix

from configs.schema.correction import CorrectionWords, Pattern
from pipelines.correction.edits import Edit

_REFERENCE = re.compile(r"\\(\d)(?:→([a-z]+))?")
_LAST_WORD = re.compile(r"[\w']+$")
_NOTHING = "(?!)"  # matches nowhere
_LOOKBACK = 24  # characters that `unless` may look at

_THIRD = {"have": "has", "are": "is", "were": "was", "do": "does", "don't": "doesn't", "am": "is"}
_PLAIN = {third: plain for plain, third in _THIRD.items() if plain != "am"}
_PLURALS = {"child": "children", "person": "people", "man": "men", "woman": "women"}
_SINGULAR_S = {"childrens": "children", "peoples": "people", "mens": "men", "womens": "women"}
_VOWELS = "aeiou"

Inflections = Mapping[str, Callable[[str], str | None]]
"""Operations by their names in patterns, such as `past`."""


def inflections(verbs: Iterable[str]) -> Inflections:
    """Makes operations that return a form of a word for any of its forms; None if it has none. Each
    of `verbs` is "base past participle"."""
    pasts: dict[str, str] = {}
    plain: dict[str, str] = {}  # base by past form or third person, unless that is a base, too
    participles: dict[str, str] = {}  # by past form
    forms = [tuple(verb.split()) for verb in verbs]
    bases = {base for base, _, _ in forms}
    for base, past, participle in forms:
        pasts |= dict.fromkeys((base, third_person(base), participle), past)
        participles[past] = participle
        for form in {past, third_person(base)} - bases:
            plain.setdefault(form, base)
    return {
        "past": lambda word: _other(word, pasts.get(word)),
        "base": plain.get,
        "participle": lambda word: _other(word, participles.get(word)),
        "ing": lambda word: progressive(word) if word in bases else None,
        "is": lambda word: _THIRD.get(word) or third_person(word),
        "third": _THIRD.get,
        "are": _PLAIN.get,
        "plain": lambda word: _PLAIN.get(word) or plain.get(word) or word.removesuffix("s"),
        "many": plural,
        "plural": _SINGULAR_S.get,
        "mass": lambda word: word.removesuffix("s"),
        "er": _comparative,
        "ier": _comparative,
    }


class Patterns:
    """Some patterns of a configuration, compiled with its groups and verbs."""

    def __init__(self, patterns: Iterable[Pattern], words: CorrectionWords) -> None:
        self._forms = inflections(words.verbs)
        groups = {**words.groups, "adjective": "|".join(words.adjectives)}
        self._rules = [
            (
                re.compile(rf"(?<![\w'’])(?:{filled(pattern.find, groups)})", re.I | re.M),
                re.compile(rf"(?:{filled(pattern.unless, groups) or _NOTHING}) *$", re.I),
                pattern,
            )
            for pattern in patterns
        ]

    def edits(self, text: str) -> Iterator[Edit]:
        """Edits in the order of the patterns; those of different patterns may overlap."""
        for find, unless, pattern in self._rules:
            for match in find.finditer(text):
                written = match.group()
                if unless.search(text[max(0, match.start() - _LOOKBACK) : match.start()]):
                    continue
                try:
                    put = _REFERENCE.sub(partial(_expand, match, self._forms), pattern.put)
                except _NoForm:
                    continue
                put = like(written, put)
                if put != written and not (pattern.kind == "capitalization" and written.isupper()):
                    yield narrowed(Edit(match.start(), match.end(), put, pattern.kind), text)


class _NoForm(Exception):
    """A word has no such inflected form, so the pattern does not apply."""


def filled(pattern: str, groups: Mapping[str, str]) -> str:
    return re.sub(r"\{([a-z_]+)\}", lambda name: groups[name.group(1)], pattern)


def _expand(match: re.Match[str], forms: Inflections, reference: re.Match[str]) -> str:
    text = match.group(int(reference.group(1))) or ""
    operation = reference.group(2)
    if operation is None:
        return text
    word = _LAST_WORD.search(text)
    form = forms[operation](word.group().lower()) if word else None
    if word is None or form is None:
        raise _NoForm
    return text[: word.start()] + like(word.group(), form)


def like(model: str, text: str) -> str:
    """Begins `text` with a capital if `model` begins with one."""
    starts = model[:1].isupper() and model != "I" and not model.startswith("I'")
    return text[:1].upper() + text[1:] if starts else text


def narrowed(edit: Edit, text: str) -> Edit:
    """Narrows an edit of `text` by the equal words at both ends."""
    old = _words(text[edit.start : edit.end])
    new = _words(edit.replacement)
    front = len(commonprefix([old, new]))
    back = len(commonprefix([old[front:][::-1], new[front:][::-1]]))
    start = edit.start + sum(map(len, old[:front]))
    end = edit.end - sum(map(len, old[len(old) - back :]))
    return Edit(start, end, "".join(new[front : len(new) - back]), edit.kind)


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[\w'’]+|[^\w\s]", text)


def _other(word: str, form: str | None) -> str | None:
    return None if form == word else form


def third_person(verb: str) -> str:
    """ "go" → "goes"."""
    return {"be": "is", "have": "has"}.get(verb) or plural(verb)


def plural(noun: str) -> str:
    """ "box" → "boxes"."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith(("s", "x", "z", "ch", "sh")) or noun in ("go", "do", "echo", "potato"):
        return noun + "es"
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def progressive(verb: str) -> str:
    """ "get" → "getting"."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and verb not in ("be", "see") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return (verb + verb[-1] if _doubles(verb) else verb) + "ing"


def _comparative(adjective: str) -> str:
    if adjective.endswith("y"):
        return adjective[:-1] + "ier"
    if adjective.endswith("e"):
        return adjective + "r"
    return (adjective + adjective[-1] if _doubles(adjective) else adjective) + "er"


def _doubles(word: str) -> bool:
    """Whether the last consonant of a short word is doubled before an ending."""
    if len(word) < 3 or word[-1] in _VOWELS + "wxy" or word[-2] not in _VOWELS:
        return word in ("forget", "begin")
    vowels = sum(character in _VOWELS for character in word)
    return (vowels == 1 and word[-3] not in _VOWELS) or word in ("forget", "begin")
