"""Written forms that are read by rule, such as chess moves, Roman numerals and abbreviations.

The rules are those of `configs/readings/`, in one expression a language, so that a text is scanned
once: the classifier and verbaliser of P. Ebden and R. Sproat, "The Kestrel TTS text normalization
system" (2014), as rewriting.
"""

import re
from functools import lru_cache
from operator import itemgetter

from configs.schema.readings import FIRST, READ_LANGUAGES, SLOT
from pipelines.text.normalisation.number_words import words_for

# A place that is not inside a word. The vowel signs of Indic scripts are no letters for `re`. Where
# words are joined, only Latin letters and digits make a word.
_START, _START_JOINED = r"(?<![\w\u0900-\u0dff])", r"(?<![A-Za-z\d.])"
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
_compiled = lru_cache(maxsize=None)(re.compile)  # a rule by itself, when it first matches


class FormRewriter:
    """Rewrites the written forms of one language; the digits that are left are read afterwards."""

    def __init__(self, language: str) -> None:
        self._words = words_for(language)
        known = self._words.own.abbreviations
        forms = {*known, *(form[0].upper() + form[1:] for form in known if len(form) > 3)}
        self._spoken = {
            form: known.get(form) or known[form[0].lower() + form[1:]] for form in forms
        }
        readings = self._words.readings
        self._rules: list[tuple[str, str]] = []
        finds, signs = [], "(?!)"
        for first, rules in filter(itemgetter(1), readings.rules.items()):
            own = [(readings.expand(rule.find), rule.say) for rule in rules]
            self._rules += own
            # The empty group at the end of each tells which one matched.
            alternatives = (f"(?:{_GROUP.sub('(?:', find)})()" for find, _ in own)
            form = f"(?={FIRST[first]})(?:{'|'.join(alternatives)})"
            if first == "sign":
                signs = form
            else:
                finds.append(form)
        if forms:
            longest_first = sorted(map(re.escape, forms), key=len, reverse=True)
            finds.append(rf"(?<!\.)(?:{'|'.join(longest_first)})(?![\w\u0900-\u0dff])")
        start = _START_JOINED if self._words.joined else _START
        self._any = re.compile(f"{start}(?:{'|'.join(finds)})|{signs}")

    def rewrite(self, text: str) -> str:
        return self._any.sub(self._read, text)

    def _read(self, found: re.Match[str]) -> str:
        if found.lastindex is None:
            words = self._spoken[found[0]]
            # A full stop that also ends the sentence is kept.
            at_end = found[0].endswith(".") and found.end() == len(found.string)
            return words + "." if at_end else words
        find, say = self._rules[found.lastindex - 1]
        match = _compiled(find).match(found.string, found.start())
        said = SLOT.sub(lambda slot: self._fill(slot, match), say) if match else found[0]
        return said.replace(" ", "") if self._words.joined else said

    def _fill(self, slot: re.Match[str], match: re.Match[str]) -> str:
        value = match[int(slot[1])] or ""
        for kind in slot[2].split(":")[1:] if value else ():
            table = self._words.readings.tables.get(kind)
            value = self._words.read(value, kind) if table is None else table.get(value, value)
        return value


@lru_cache(maxsize=64)
def rewriter(language: str) -> FormRewriter:
    """The rules of an ISO 639-1 code, compiled; 15 ms for the first call of English."""
    return FormRewriter(language)


def compile_rules() -> None:
    """Compiles the rules of all languages in advance; blocking, 0.1 s."""
    for language in READ_LANGUAGES:
        rewriter(language)
