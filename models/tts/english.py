"""Rewrites capitals in English text for phonemizers. hibari and espeak-ng read a lone "A" as the
article, and "A-" as the letter. hibari spells words in capitals that its tagger takes for names;
its dictionary tells which of them are words."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from configs.load import load_yaml
from configs.schema.base import StrictModel

_Words = Annotated[tuple[str, ...], BeforeValidator(str.split)]


class _Letters(StrictModel):
    """The lists of `configs/english_letters.yaml`, which explains them."""

    numbering: _Words
    also_verbs: _Words
    after_first: _Words
    emphasised: _Words
    shouted: _Words
    after_article: _Words
    initials: _Words


_LISTS = load_yaml(_Letters, "english_letters")
_NUMBERING = "|".join(_LISTS.numbering)
_VERBS = "|".join(_LISTS.also_verbs)
_AFTER = rf"(?i:{'|'.join(_LISTS.after_first)})\b"
_SURE_LETTER = re.compile(
    rf"\b(?i:{_NUMBERING}) A(?![\w'’.-])|\b(?i:{_VERBS}) A(?![\w'’.-]| (?!{_AFTER})[A-Z])"
    r"|\b[B-HJ-Z] (?:and |or |to )?A(?![\w'’.-])|\bA(?= (?:and |or |to )?[B-HJ-Z]\b(?!['’-]))"
    rf"|^A(?= {_AFTER})"
)
_COMPOUND = re.compile(r"\bA-(?=\w)")  # hibari reads the A of "A-two" as the article, too
# Matches within a sentence in lower case, but not in a title such as "Once Upon A Time".
_LETTER_INSIDE = re.compile(
    r"(?<=[a-z] )A(?= (?:[^A-Z]|[A-Z]\b|(?:Minor|Major|Flat|Sharp)\b)|[^\w\s'’.-]|$)"
)
_WORD = re.compile(r"(?<![\w'’])(?:[A-Z]{2,}(?:['’][A-Z]{1,2})?|A(?!-)|[A-Za-z]*[a-z])(?![\w'’])")
_CONTRACTION = re.compile(r"['’](?:T|LL|RE|VE|M|D)$")
# A pronounceable name that no dictionary has, too long for initials; shorter among capitals.
_NAME = re.compile(r"(?=(?:[A-Z]*[AEIOUY]){2})(?![A-Z]*[^AEIOUY]{4})[A-Z]{6,}$|[A-Z]{8,}$")
_SHORT_NAME = re.compile(
    rf"(?!(?:{'|'.join(_LISTS.initials)})$|[AEIOU]...$|[A-Z]*[^AEIOUY]{{3}})"
    r"(?:[B-DF-HJ-NP-TV-Z]|[B-DFGKPST][HLRW]|S[CKMNPT])?[AEIOUY][A-Z]{2,}$",
    re.IGNORECASE,
)
# hibari reads "no." and "fig." as abbreviations. Those were written out before.
_NO_ABBREVIATION = re.compile(r"\b(no|fig|(?<=[Tt]he )Sun)(?=\.)")
_ARTICLES = frozenset(("a", "an", "the", "our", "your", "their"))


def with_letters(text: str) -> str:
    """Writes "A-" for each "A" that is the letter, not the article."""
    if "A" not in text:
        return text
    text = _sure_letters(text)
    return text if text.isupper() else _LETTER_INSIDE.sub("A-", text)


def _sure_letters(text: str) -> str:
    return _COMPOUND.sub("A- ", _SURE_LETTER.sub(r"\g<0>-", text))


class EnglishPhonemizer:
    """Reads words in capitals as words, and letters as letters."""

    def __init__(self, g2p: Any) -> None:
        self.british: bool = g2p.british
        self._g2p = g2p

    def __call__(self, text: str) -> str:
        spoken: str = self._g2p(_NO_ABBREVIATION.sub(r"\1 ", self._readable(text)))
        return spoken

    def _readable(self, text: str) -> str:
        words = _WORD.findall(text)
        capitals = [word for word in words if word.isupper() and len(word) > 1]
        if not capitals:
            return with_letters(text)
        certain = sum(self._is_word(word) and not self._is_initials(word) for word in capitals)
        others = sum(not word.isupper() for word in words)
        is_shouted = not others or 2 * certain > others
        before = ""

        def read(match: re.Match[str]) -> str:
            nonlocal before
            word, last = match[0], before
            before = word.lower()
            return self._cased(word, last, is_shouted=is_shouted)

        spelled = _sure_letters(text) if is_shouted else with_letters(text)
        return _WORD.sub(read, spelled)

    def _cased(self, word: str, before: str, *, is_shouted: bool) -> str:
        """Cases a word so that the phonemizer reads it correctly after the word `before`."""
        lower = word.lower()
        if not word.isupper():
            return word
        if self._is_initials(word):
            stays_capital = before in _ARTICLES or (not before and lower == "us")
            if lower in _LISTS.after_article and stays_capital:
                return word
            is_word = lower in (_LISTS.shouted if is_shouted else _LISTS.emphasised)
            return lower if is_word else word
        if word == "A":
            return "a" if is_shouted else word
        if _CONTRACTION.search(word) or self._is_word(word):
            return lower
        is_name = _NAME.match(word) or (is_shouted and len(word) > 3 and _SHORT_NAME.match(word))
        return word.capitalize() if is_name else word

    def _is_initials(self, word: str) -> bool:
        """Whether the dictionary says that a word in capitals is also read letter by letter."""
        reading = self._g2p.lexicon.golds.d.get(word)
        return isinstance(reading, dict) and "NOUN" in reading

    def _is_word(self, word: str) -> bool:
        lexicon, word = self._g2p.lexicon, re.split("['’]", word.lower())[0]
        if word in lexicon.golds or word in lexicon.silvers:
            return word.upper() not in lexicon.golds.d or self._is_initials(word.upper())
        stems = (lexicon.stem_s, lexicon.stem_ed, lexicon.stem_ing)
        return len(word) > 3 and any(stem(word, "NN", None, None)[0] for stem in stems)
