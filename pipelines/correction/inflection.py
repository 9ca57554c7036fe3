"""Forms of English words: of verbs, and of a few nouns and adjectives."""

from collections.abc import Callable, Iterable, Mapping

_THIRD = {"have": "has", "are": "is", "were": "was", "do": "does", "don't": "doesn't", "am": "is"}
_PLAIN = {third: plain for plain, third in _THIRD.items() if plain != "am"}
_PLURALS = {"child": "children", "person": "people", "man": "men", "woman": "women"}
_SINGULAR_S = {"childrens": "children", "peoples": "people", "mens": "men", "womens": "women"}
_VOWELS = "aeiou"


class InflectedForms:
    """Looks up by any form. A method answers None where a word has no such other form."""

    def __init__(self, verbs: Iterable[str]) -> None:
        """`verbs`: "base past participle" each."""
        self._past: dict[str, str] = {}
        self._base: dict[str, str] = {}  # of a past or third person; never of a base
        self._participle: dict[str, str] = {}  # of a past form that is not its own participle
        for base, past, participle in map(str.split, verbs):
            self._past[base] = past
            self._past[third_person(base)] = past
            self._past[participle] = past
            self._participle[past] = participle
            for form in (past, third_person(base)):
                self._base.setdefault(form, base)
        bases = {verb.split()[0] for verb in verbs}
        self._bases = bases
        self._base = {form: base for form, base in self._base.items() if form not in bases}
        self.operations: Mapping[str, Callable[[str], str | None]] = {
            "past": lambda word: _other(word, self._past.get(word)),
            "base": self._base.get,
            "participle": lambda word: _other(word, self._participle.get(word)),
            "ing": lambda word: progressive(word) if word in self._bases else None,
            "is": lambda word: _THIRD.get(word) or third_person(word),
            "third": _THIRD.get,
            "are": _PLAIN.get,
            "plain": lambda word: (
                _PLAIN.get(word) or self._base.get(word) or word.removesuffix("s")
            ),
            "many": plural,
            "plural": _SINGULAR_S.get,
            "mass": lambda word: word.removesuffix("s"),
            "er": lambda word: _compared(word, "er"),
            "ier": lambda word: _compared(word, "er"),
        }


def _other(word: str, form: str | None) -> str | None:
    return None if form == word else form


def third_person(verb: str) -> str:
    """ "go" → "goes"."""
    if verb in ("be", "have"):
        return {"be": "is", "have": "has"}[verb]
    return plural(verb)


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


def _compared(adjective: str, ending: str) -> str:
    if adjective.endswith("y"):
        return adjective[:-1] + "i" + ending
    if adjective.endswith("e"):
        return adjective + ending[1:]
    return (adjective + adjective[-1] if _doubles(adjective) else adjective) + ending


def _doubles(word: str) -> bool:
    """Whether the last consonant of a short word is doubled before an ending."""
    if len(word) < 3 or word[-1] in _VOWELS + "wxy" or word[-2] not in _VOWELS:
        return word in ("forget", "begin")
    vowels = sum(character in _VOWELS for character in word)
    return (vowels == 1 and word[-3] not in _VOWELS) or word in ("forget", "begin")
