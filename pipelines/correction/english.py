"""Rules for English: patterns, word statistics and Harper, repeated until nothing changes.

Protected spans are never touched, and a doubtful finding changes nothing.
"""

import re
from collections.abc import Iterator

from lingua import Language

from configs.schema.correction import CorrectionWords
from models.grammar_check.base import Finding, GrammarEngine
from models.grammar_check.word_statistics import WordStatistics
from pipelines.correction.edits import Edit, Kind, apply_edits, compose
from pipelines.correction.patterns import Patterns, like, narrowed
from pipelines.correction.protection import begins_sentence, protected_spans, respecting
from pipelines.correction.spelling import Speller, WordChecker
from pipelines.text.language_detection import paragraph_language

_ROUNDS = 3  # a correction may reveal another mistake
_LONE_WORD = re.compile(r"(?<![\w@#/.-])[^\W\d_]+(?:['’][^\W\d_]+)*(?!\w)")
_TOKEN = re.compile(r"[A-Za-z0-9]+")
_NO_LETTERS = re.compile(r"[^A-Za-z]*")
_SAMPLE = 2000  # characters by which the language is detected
_COMMON = -15.0  # a word rarer than this says nothing about the language
_COMMON_SHORT = -9.0  # the same for words that many languages may have
_SHORT = 3  # letters
_LONG = 6  # letters; so long a word is not near another by chance
_SURELY_ENGLISH = 0.8  # share of the words
_ENGLISH_SHARE = 0.65
_ALL_LANGUAGES = frozenset(language.iso_code_639_1.name.lower() for language in Language.all())


class English:
    """Rules for one language; one instance serves all threads."""

    def __init__(
        self, engine: GrammarEngine, statistics: WordStatistics, words: CorrectionWords
    ) -> None:
        self._engine = engine
        self._statistics = statistics
        self._patterns = Patterns(words)
        self._speller = Speller(statistics, words.confusables, words.proper)
        self._apostrophes = words.apostrophes
        self._respellings = words.respellings
        self._proper = frozenset(words.proper)
        self._abbreviations = words.abbreviations
        self.spelled_with_digits = frozenset(
            word for word in words.respellings if not word.isalpha()
        )

    def is_english(self, text: str) -> bool:
        """Whether nearly all words are English, or most are and lingua agrees.

        A text without words counts as English.
        """
        words = [match.group().lower() for match in _LONE_WORD.finditer(text[:_SAMPLE])]
        known = sum(map(self._is_known, words))
        if known >= _SURELY_ENGLISH * len(words):
            return True
        if known < _ENGLISH_SHARE * len(words):
            return False
        # With an expected language lingua needs its small models only.
        return paragraph_language(text, _ALL_LANGUAGES, "en", None) == "en"

    def _is_known(self, word: str) -> bool:
        plain = word.replace("’", "'").split("'")[0]
        if word in self._apostrophes or word in self._respellings or word in self._abbreviations:
            return True
        if len(plain) <= _SHORT:
            return self._statistics.log_probability(plain) > _COMMON_SHORT
        if self._statistics.log_probability(plain) > _COMMON:
            return True
        return len(plain) >= _LONG and self._speller.is_near(plain, _COMMON)

    def correct(self, text: str, *, casual: bool = False) -> list[Edit]:
        """The edits of one paragraph or less; `casual` leaves the spellings of messages."""
        if _NO_LETTERS.fullmatch(text):
            return []
        edits: list[Edit] = []
        steps = [lambda now: self._known_words(now, casual), self._rules, self._grammar]
        for _ in range(_ROUNDS):
            before = edits
            for step in steps:
                now = apply_edits(text, edits)
                held = protected_spans(now, self.spelled_with_digits)
                edits = compose(text, edits, respecting(held, step(now)))
            if edits == before:
                break
        return edits

    def _known_words(self, text: str, casual: bool) -> Iterator[Edit]:
        for match in _TOKEN.finditer(text):
            word = match.group()
            if text[match.end() : match.end() + 1] in ("'", "’") or text[
                match.start() - 1 : match.start()
            ] in ("'", "’"):
                continue
            put = self._apostrophes.get(word.lower())
            if put is None and not casual:
                put = self._respellings.get(word.lower())
            if (
                put is not None
                and (word.islower() or word == word.capitalize())
                and not _dotted(text, match)
            ):
                yield Edit(match.start(), match.end(), like(word, put), "spelling")

    def _rules(self, text: str) -> Iterator[Edit]:
        yield from self._patterns.edits(text)
        words = WordChecker(text)
        for index, (start, end) in enumerate(words.spans):
            word = text[start:end]
            if word.lower() != word and not begins_sentence(text, start):
                continue
            swap = self._speller.swap(word.lower(), words.neighbours(index))
            if swap is not None:
                yield Edit(start, end, like(word, swap), "spelling")

    def _grammar(self, text: str) -> Iterator[Edit]:
        """Spelling comes last: a grammar rule for "buyed" is better than an edit distance."""
        findings = self._engine.check(text)
        for finding in findings:
            if not finding.is_spelling and not self._is_doubtful(text, finding):
                first, kind = finding.replacements[0], _kind(text, finding)
                yield narrowed(Edit(finding.start, finding.end, first, kind), text)
        words = WordChecker(text)
        for finding in findings:
            if finding.is_spelling and (put := self._spelled(text, words, finding)) is not None:
                word = text[finding.start : finding.end]
                kind = "capitalization" if put.lower() == word.lower() else "spelling"
                yield Edit(finding.start, finding.end, put, kind)

    def _is_doubtful(self, text: str, finding: Finding) -> bool:
        old, new = text[finding.start : finding.end], finding.replacements[0]
        if old.lower() in self._abbreviations:
            return True  # "btw" may stand
        following = text[finding.end : finding.end + 8]
        if old.lower() == new.lower() and old != "i":
            # "london", but neither "cpu" nor "u".
            return len(old) == 1 or not old.islower() or new != old.capitalize()
        if old.lower() in ("a", "an"):
            return re.match(r"\W*[A-Z]{2}", following) is not None  # read letter by letter
        if old.isspace():
            return re.match(r"\.\w", following) is not None  # " .bashrc"
        return old.lower() == "it's" and re.match(r" [A-Z]", following) is not None

    def _spelled(self, text: str, words: WordChecker, finding: Finding) -> str | None:
        word = text[finding.start : finding.end]
        index = words.index(finding.start, finding.end)
        if index is None or not word.isalpha() or not word.isascii():
            return None
        if (
            _is_joined(text, finding)
            or word.isupper()
            or word.lower() in {*self._respellings, *self._abbreviations}
        ):
            return None
        capital = word[0].isupper()
        initial = capital and begins_sentence(text, finding.start)
        offered = finding.replacements
        if capital and initial:
            # Suggestions for the word in lower case, since it is capitalised by its place.
            offered = tuple(
                r for f in self._engine.check(word.lower()) if f.is_spelling for r in f.replacements
            )
        elif capital:
            offered = ()
        put = self._speller.meant(
            word.lower(), offered, words.neighbours(index), may_be_name=capital
        )
        if put is not None and put.lower() == word.lower() and put != word.capitalize():
            return None
        if put is None or (capital and not initial and put not in self._proper):
            return None
        return like(word, put)


def _dotted(text: str, match: re.Match[str]) -> bool:
    """Whether it is part of something like "u.s" or "im.net"."""
    return text[match.start() - 1 : match.start()] in (".", "/", "@", "_", "-") or (
        text[match.end() : match.end() + 1] in (".", "/", "@", "_", "-")
        and text[match.end() + 1 : match.end() + 2].isalnum()
    )


def _is_joined(text: str, finding: Finding) -> bool:
    """Whether it is part of something longer, such as "update-passwd"."""
    before = text[finding.start - 1 : finding.start]
    after = text[finding.end : finding.end + 2]
    return before in tuple("-./_@#+(") or re.match(r"[-./_@#+(]\w", after) is not None


def _kind(text: str, finding: Finding) -> Kind:
    old, new = text[finding.start : finding.end], finding.replacements[0]
    if old.lower() == new.lower():
        return "capitalization"
    if old.split() == new.split():
        return "spacing"
    if not any(map(str.isalnum, old + new)):
        return "punctuation"
    return "grammar"
