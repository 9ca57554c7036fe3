"""English words with two pronunciations: the words around them, or an accent, tell which one is
meant."""

import re
import unicodedata
from collections.abc import Sequence

from hibari.g2p import G2P
from hibari.g2p.token import Tok

from configs.load import load_yaml
from configs.schema.homographs import Homographs, Rule

_TABLES = load_yaml(Homographs, "english_homographs")
_WORDS = _TABLES.words
_ENDS = frozenset(".!?…")  # signs that end a sentence
# Opening quotation marks of direct speech. The tagger takes them for nouns, and then "Excuse" in
# "Excuse me" for a name; the speech is tagged as a sentence of its own.
_SPEECH = re.compile(r"""(?:^|(?<=[,:;.!?…"”]\s))["“](?=[A-Z][\w'’ ])""", re.MULTILINE)


class ContextG2P(G2P):  # type: ignore[misc]  # the library has no types
    """Text to phonemes, with the rules of `configs/english_homographs.yaml`."""

    def tokenize(self, text: str) -> list[Tok]:
        """Splits a text; homographs that a rule decides have its tag or phonemes."""
        tokens: list[Tok] = []
        for part in _SPEECH.split(text):
            tokens += super().tokenize(part)
        words = _words(tokens)
        for place, word in enumerate(words):
            if rules := _WORDS.get(word):
                self._decide(tokens[place], rules, *_around(words, place))
            elif word.replace("'", "").isalpha():
                self._read_accented(tokens[place], word)
            if word == "'s" and place and (stem := tokens[place - 1].phonemes):
                tokens[place].phonemes = self.lexicon._s(stem)[len(stem) :]
        return tokens

    def _decide(
        self, token: Tok, rules: tuple[Rule, ...], before: Sequence[str], after: Sequence[str]
    ) -> None:
        rule = next((rule for rule in rules if _matches(rule, token, before, after)), None)
        if rule is None:
            return
        token.tag = rule.tag or token.tag
        if rule.phonemes:
            token.phonemes = (self.british and rule.british) or rule.phonemes
            token.rating = 5  # the library's value for a given pronunciation

    def _read_accented(self, token: Tok, word: str) -> None:
        """Reads a word with accents, or one of the table that the dictionary does not have."""
        plain = _plain(word)
        bare = plain if plain in _TABLES.accented else plain.removesuffix("s")
        readings = _TABLES.accented.get(bare)
        is_known = self.lexicon.is_known
        if readings and (plain != word or not (is_known(plain, token.tag) or is_known(bare, None))):
            reading = readings[-1] if self.british else readings[0]
            token.phonemes = reading if bare == plain else self.lexicon._s(reading)
            token.rating = 5
        elif word.endswith("èd") and (
            reading := self.lexicon.get_word(plain, "VBD", None, None)[0]
        ):
            ending = "ɪd" if self.british else "ᵻd"  # the accent makes it a syllable: "learnèd"
            token.phonemes = reading if reading.endswith(ending) else reading[:-1] + ending
        elif plain != word and is_known(plain, token.tag):
            # A final "é" is heard: "lamé" is not "lame".
            reading = self.lexicon.lookup(plain, token.tag, None, None)[0] or ""
            if reading.rstrip("z").endswith("A") or not word.removesuffix("s").endswith("é"):
                token.alias = _plain(token.text)


def _plain(word: str) -> str:
    """Return a word without accents."""
    if word.isascii():
        return word
    letters = unicodedata.normalize("NFD", word)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _words(tokens: Sequence[Tok]) -> list[str]:
    """The tokens in lower case; "n't" is its own token, and here "have", "haven't"."""
    words = [token.text.lower().replace("’", "'") for token in tokens]
    return [words[at - 1] + word if word == "n't" else word for at, word in enumerate(words)]


def _around(words: Sequence[str], place: int) -> tuple[Sequence[str], Sequence[str]]:
    """The words of the sentence before and after a place; the sign that ends it belongs to it."""
    begin = next((at + 1 for at in range(place - 1, -1, -1) if words[at] in _ENDS), 0)
    end = next((at + 1 for at in range(place, len(words)) if words[at] in _ENDS), len(words))
    return words[begin:place], words[place + 1 : end]


def _matches(rule: Rule, token: Tok, before: Sequence[str], after: Sequence[str]) -> bool:
    return (
        (not rule.tags or token.tag in rule.tags)
        and (not rule.before or (before[-1] if before else "^") in rule.before)
        and (not rule.earlier or _earlier(before) in rule.earlier)
        and (not rule.after or (after[0] if after else "$") in rule.after)
        and (not rule.cased or token.text[0].isupper())
        and not (rule.preceding and rule.preceding.isdisjoint(before))
        and not (rule.near and rule.near.isdisjoint(before) and rule.near.isdisjoint(after))
    )


def _earlier(before: Sequence[str]) -> str:
    """The last word but one; "haven't" has two places, the first of them for "have"."""
    place = 3 if before and before[-1].endswith("n't") else 2
    return before[-place] if len(before) >= place else "^"
