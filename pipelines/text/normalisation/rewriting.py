"""Rewrites written forms by rule, such as chess moves, Roman numerals and abbreviations.

The rules are those of `configs/readings/`, in one expression per language, so that a text is
scanned once: the classifier and verbaliser of P. Ebden and R. Sproat, "The Kestrel TTS text
normalization system" (2014), as rewriting.
"""

import re
from functools import lru_cache
from operator import itemgetter

from configs.schema.readings import FIRST, READ_LANGUAGES, SLOT
from pipelines.text.normalisation.number_words import INDIC, words_for

# Matches outside words. Where words are joined, only Latin letters and digits make a word.
_START, _START_JOINED = rf"(?<![\w{INDIC}])", r"(?<![A-Za-z\d.])"
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
_compiled = lru_cache(maxsize=None)(re.compile)  # compiles a rule by itself when it first matches


class FormRewriter:
    """Rewriter of the written forms of one language; remaining digits are read afterwards."""

    def __init__(self, language: str) -> None:
        self._words = words_for(language)
        table = self._words.own.abbreviations
        forms = {
            *table,
            *(form[0].upper() + form[1:] for form in table if len(form) > 3),
        }
        self._spoken = {
            form: table.get(form) or table[form[0].lower() + form[1:]] for form in forms
        }
        readings = self._words.readings
        self._rules: list[tuple[str, str]] = []
        finds = []
        signs = "(?!)"
        for first, rules in filter(itemgetter(1), readings.rules.items()):
            own = [(readings.expand(rule.find), rule.say) for rule in rules]
            self._rules += own
            # The empty group at the end of each alternative tells which one matched.
            alternatives = (f"(?:{_GROUP.sub('(?:', find)})()" for find, _ in own)
            form = f"(?={FIRST[first]})(?:{'|'.join(alternatives)})"
            if first == "sign":
                signs = form
            else:
                finds.append(form)
        if forms:
            longest_first = sorted(map(re.escape, forms), key=len, reverse=True)
            finds.append(rf"(?<!\.)(?:{'|'.join(longest_first)})(?![\w{INDIC}])")
        start = _START_JOINED if self._words.joined else _START
        self._any = re.compile(f"{start}(?:{'|'.join(finds)})|{signs}")

    def rewrite(self, text: str) -> str:
        return self._any.sub(self._read, text)

    def _read(self, form: re.Match[str]) -> str:
        if form.lastindex is None:
            spoken = self._spoken[form[0]]
        else:
            find, say = self._rules[form.lastindex - 1]
            match = _compiled(find).match(form.string, form.start())
            spoken = SLOT.sub(lambda slot: self._fill(slot, match), say) if match else form[0]
            spoken = spoken.replace(" ", "") if self._words.joined else spoken
        # Keeps a full stop that also ends the sentence.
        at_end = form[0].endswith(".") and form.end() == len(form.string) and spoken
        return spoken + "." if at_end and spoken[-1] != "." else spoken

    def _fill(self, slot: re.Match[str], match: re.Match[str]) -> str:
        value = match[int(slot[1])] or ""
        for kind in slot[2].split(":")[1:] if value else ():
            table = self._words.readings.tables.get(kind)
            value = self._words.read(value, kind) if table is None else table.get(value, value)
        return value


@lru_cache(maxsize=64)
def rewriter(language: str) -> FormRewriter:
    """Compiles the rules of an ISO 639-1 code; 15 ms for the first call of English."""
    return FormRewriter(language)


def compile_rules() -> None:
    """Compiles the rules of all languages in advance; blocking, 0.1 s."""
    for language in READ_LANGUAGES:
        rewriter(language)
