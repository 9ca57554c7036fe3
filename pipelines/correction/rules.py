"""Corrects a piece of English without a language model: patterns, word statistics and Harper.

They are repeated until nothing changes. Protected spans are never touched, and a doubtful finding
changes nothing."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from lingua import Language

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig, CorrectionWords, Pattern
from configs.schema.languages import DETECTED
from models.grammar_check.base import Finding, GrammarEngine
from models.grammar_check.word_statistics import WordStatistics
from pipelines.correction.edits import Edit, Kind, apply_edits, compose
from pipelines.correction.passages import Passage
from pipelines.correction.patterns import Patterns, like, narrowed
from pipelines.correction.protection import (
    Protected,
    begins_sentence,
    carried,
    protected_spans,
    respecting,
)
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.spelling import Speller, WordChecker
from pipelines.correction.style import abbreviations, capitals, end_mark
from pipelines.text.language_detection import detect_language, paragraph_language

_ROUNDS = 3  # a correction may reveal another mistake
_LONE_WORD = re.compile(r"(?<![\w@#/.-])[^\W\d_]+(?:['’][^\W\d_]+)*(?!\w|://)")
_NAME_AFTER = re.compile(r" [A-Z][^\W\d_]")  # unlike " I"
_WORD_BEFORE = re.compile(r"([^\W\d_]+) $")
_WORD_AFTER = re.compile(r" ([^\W\d_]+)")
# A whole word, but no part of "u.s" or "im.net".
_TOKEN = re.compile(r"(?<![A-Za-z0-9'’./@_-])[A-Za-z0-9]++(?!['’]|[./@_-][^\W_])")
_NO_LETTERS = re.compile(r"[^A-Za-z]*")
_SAMPLE = 2000  # characters used to detect the language
_COMMON = -15.0  # log probability under which a word is no evidence of the language
_COMMON_SHORT = -9.0  # the same for short words, which many languages may share
_SHORT = 3  # letters
_LONG = 6  # letters of a word that resembles no other by chance
_ENOUGH = 3  # words in small letters that tell the language
_SURELY_ENGLISH = 0.8  # share of the words
_MOSTLY_ENGLISH = 0.65
_PERHAPS_ENGLISH = 0.5  # share in a text with many names or misspellings
# Repetitions that are often meant, words that need no comma after them, and "you guys".
_ACCEPTED = frozenset(("had had", "that that", "notwithstanding", "thus", "guys"))
# What follows a space that is kept: ".bashrc", or a dash or dots that end a broken sentence.
_KEEPS_SPACE = re.compile(r"\.\w|[-–—…]|\.\.")
# What follows an "a" that stays: it is a letter ("A&M"), broken off ("a- I"), or before "PNG".
_NO_ARTICLE = re.compile(r"&|[-–—]|\W*[A-Z]{2}")
_PARTICLES = frozenset("al da das de del della der di dos du el la las le los van von".split())
_ALL_LANGUAGES = frozenset(language.iso_code_639_1.name.lower() for language in Language.all())


class CorrectionRules:
    """Rules that correct English. Blocking; one instance serves all threads."""

    def __init__(self, engine: GrammarEngine, config: CorrectionConfig) -> None:
        """Reads the words of `configs/correction_words.yaml`."""
        words = load_yaml(CorrectionWords, "correction_words")
        self._engine = engine
        self._statistics = WordStatistics()
        self._patterns = Patterns(words.patterns, words)
        self._contractions = {
            use: Patterns(
                (Pattern(find=f"(?<!-){a}", put=b, kind="contraction") for a, b in pairs), words
            )
            for use, pairs in ((True, words.contractions), (False, words.expansions))
        }
        self._speller = Speller(self._statistics, words)
        self._words = words
        # Words that count as English, however they are spelled.
        self._accepted = {*words.apostrophes, *words.respellings, *words.abbreviations}
        self._casual = frozenset(config.casual_contexts)
        self._spelled_with_digits = frozenset(
            word for word in words.respellings if not word.isalpha()
        )

    def is_english(self, text: str) -> bool:
        """Whether a text is English; a text without words counts as English.

        If nearly all words are English, so is the text. If most words are, lingua must find no
        other language. If half of the words are English or resemble English words, lingua's full
        models, which need 260 MB, must find English."""
        lone_words = _LONE_WORD.findall(text[:_SAMPLE])
        # Names say nothing about the language: "Nguyễn Văn Thịnh dont know it."
        plain = [word for word in lone_words if word.islower()]
        english = sum(map(self._is_known, plain))
        if len(plain) >= _ENOUGH and english >= _SURELY_ENGLISH * len(plain):
            return True
        words = [word.lower() for word in lone_words]
        unknown = [word for word in words if not self._is_known(word)]
        recognised = len(words) - len(unknown)
        if recognised >= _SURELY_ENGLISH * len(words):
            return True
        if recognised >= _MOSTLY_ENGLISH * len(words):
            # With an expected language lingua needs its small models only.
            return paragraph_language(text, _ALL_LANGUAGES, "en") == "en"
        recognised += sum(
            len(word) >= _LONG and self._speller.is_near(word, _COMMON) for word in unknown
        )
        if recognised < _PERHAPS_ENGLISH * len(words):
            return False
        return detect_language(text, DETECTED) == "en"

    def _is_known(self, word: str) -> bool:
        plain = word.replace("’", "'").split("'")[0]
        least = _COMMON_SHORT if len(plain) <= _SHORT else _COMMON
        return word in self._accepted or self._statistics.log_probability(plain) > least

    def is_worse(self, before: str, after: str) -> bool:
        """Whether rules find more mistakes in `after`."""
        if not self.is_english(before):
            return self.is_english(after)
        return len(self._correct(after)) > len(self._correct(before))

    def language(self, text: str) -> str | None:
        """Detects the ISO 639-1 code of a text; None where it is uncertain, as for names alone."""
        if self.is_english(text):
            return "en"
        code = detect_language(text, DETECTED)
        words = _LONE_WORD.findall(text)
        return None if code == "en" or all(word[0].isupper() for word in words) else code

    def mistakes(
        self, text: str, request: CorrectionRequest, held: Sequence[Protected] = ()
    ) -> list[Edit]:
        """Finds edits that correct a piece outside `held`; none where it is not English."""
        if not self.is_english(text):
            return []
        style = request.style
        casual = request.app_context in self._casual and not style.expand_abbreviations
        edits = self._correct(text, held, casual=casual)
        if style.auto_punctuate is False:
            return [edit for edit in edits if edit.kind != "punctuation"]
        return edits

    def styled(
        self, text: str, piece: Passage, request: CorrectionRequest, held: Sequence[Protected] = ()
    ) -> list[Edit]:
        """Finds edits that give a corrected piece the requested style outside `held`."""
        style = request.style
        followed = partial(self._followed, text, held)
        english = self.is_english(text)
        edits: list[Edit] = []
        if english and style.use_contractions is not None:
            patterns = self._contractions[style.use_contractions]
            edits = followed(edits, lambda now: patterns.edits(now.replace("’", "'")))
        if english and style.expand_abbreviations:
            # "ASAP" looks like an identifier, but must be written out.
            find = partial(abbreviations, table=self._words.abbreviations)
            edits = followed(edits, find, but="identifier")
        capitalize = style.auto_capitalize
        if capitalize or (capitalize is None and english):
            edits = followed(edits, capitals)
        punctuate = style.auto_punctuate
        if punctuate is None:
            punctuate = request.app_context not in self._casual
        if english and punctuate and piece.ends_paragraph:
            edits = followed(edits, end_mark)
        return edits

    def _followed(
        self,
        text: str,
        held: Sequence[Protected],
        edits: list[Edit],
        find: Callable[[str], Iterable[Edit]],
        but: str | None = None,
    ) -> list[Edit]:
        """Adds the edits of `find` outside `held`. Protected spans of kind `but` may be changed."""
        now = apply_edits(text, edits)
        spans = protected_spans(now, self._spelled_with_digits)
        kept = [*carried(held, edits), *(span for span in spans if span.kind != but)]
        return compose(text, edits, respecting(kept, find(now)))

    def _correct(
        self, text: str, held: Sequence[Protected] = (), *, casual: bool = False
    ) -> list[Edit]:
        """Finds the edits of at most a paragraph; `casual` keeps the spellings of chat messages."""
        if _NO_LETTERS.fullmatch(text):
            return []
        edits: list[Edit] = []
        steps = (partial(self._known_words, casual=casual), self._rules, self._grammar)
        for _ in range(_ROUNDS):
            before = edits
            for step in steps:
                edits = self._followed(text, held, edits, step)
            if edits == before:
                break
        return edits

    def _known_words(self, text: str, casual: bool) -> Iterator[Edit]:
        for match in _TOKEN.finditer(text):
            word = match.group()
            put = self._words.apostrophes.get(word.lower())
            if put is None and not casual:
                put = self._words.respellings.get(word.lower())
            if put is not None and (word.islower() or word == word.capitalize()):
                yield Edit(match.start(), match.end(), like(word, put), "spelling")

    def _rules(self, text: str) -> Iterator[Edit]:
        yield from self._patterns.edits(text)
        words = WordChecker(text)
        for index, (start, end) in enumerate(words.spans):
            word = text[start:end]
            if word.lower() != word and not begins_sentence(text, start):
                continue
            if "-" in (text[start - 1 : start], text[end : end + 1]):
                continue  # "ten-hour" means something other than "hour"
            swap = self._speller.swap(word.lower(), words.neighbours(index))
            if swap is not None:
                yield Edit(start, end, like(word, swap), "spelling")

    def _grammar(self, text: str) -> Iterator[Edit]:
        """Yields Harper's edits; spelling is last: a rule for "buyed" beats an edit distance."""
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
        if old.lower() in self._words.abbreviations:
            return True  # "btw" is accepted
        following = text[finding.end : finding.end + 8]
        if old.lower() == new.lower() and old != "i":
            # A name, such as "london", but not "cpu", "u" or "glover".
            is_name = old.islower() and new == old.capitalize() and len(old) > 1
            return not is_name or self._statistics.is_listed(old)
        if old.lower() in ("a", "an"):
            return _NO_ARTICLE.match(following) is not None
        if old.lower() in _ACCEPTED or _is_in_name(text, finding):
            return True
        if old.isspace():
            return _KEEPS_SPACE.match(following) is not None
        return old.lower() == "it's" and re.match(r" [A-Z]", following) is not None

    def _spelled(self, text: str, words: WordChecker, finding: Finding) -> str | None:
        word = text[finding.start : finding.end]
        index = words.indices.get((finding.start, finding.end))
        if index is None or not word.isalpha() or not word.isascii():
            return None
        if word.isupper() or any(
            is_left(text, finding) for is_left in (_is_joined, _is_foreign, _is_in_name)
        ):
            return None
        if word.lower() in self._words.respellings or word.lower() in self._words.abbreviations:
            return None
        capital = word[0].isupper()
        following = text[finding.end : finding.end + 3]
        if following.startswith("-") or (capital and _NAME_AFTER.match(following)):
            return None  # "proble-" was broken off, and "Auguste Rodin" is a name
        initial = capital and begins_sentence(text, finding.start)
        offered = finding.replacements
        if initial:
            # Suggestions for the word in lower case, since only its place capitalises it.
            offered = tuple(
                r for f in self._engine.check(word.lower()) if f.is_spelling for r in f.replacements
            )
        elif capital:
            offered = ()
        put = self._speller.meant(
            word.lower(), offered, words.neighbours(index), may_be_name=capital
        )
        if put is None or (put.lower() == word.lower() and put != word.capitalize()):
            return None
        if capital and put not in self._words.proper:
            if not initial or (put not in offered and put.capitalize() in offered):
                return None  # one name for another, such as "Winston" for "Winstone"
        return like(word, put)


def _is_foreign(text: str, finding: Finding) -> bool:
    """Whether the word is beside one with foreign letters, as in "Comédie humaine"."""
    before = _WORD_BEFORE.search(text, 0, finding.start)
    after = _WORD_AFTER.match(text, finding.end)
    return any(match is not None and not match[1].isascii() for match in (before, after))


def _is_in_name(text: str, finding: Finding) -> bool:
    """Whether it is a part of a name: "El Mundo" or the "del" of "Punta del Este"."""
    old = text[finding.start : finding.end]
    words = old.split()
    if len(words) > 1 and all(word[0].isupper() for word in words):
        return True
    after = _WORD_AFTER.match(text, finding.end)
    return old in _PARTICLES and after is not None and after[1][0].isupper()


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
