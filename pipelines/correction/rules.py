"""Correction and style of a piece of text without a language model."""

from collections.abc import Iterable

from configs.load import load_yaml
from configs.schema.correction import CorrectionConfig, CorrectionWords
from models.grammar_check.base import GrammarEngine
from models.grammar_check.word_statistics import WordStatistics
from pipelines.correction.contractions import contractions
from pipelines.correction.edits import Edit, apply_edits, compose
from pipelines.correction.english import English
from pipelines.correction.passages import Passage
from pipelines.correction.protection import protected_spans, respecting
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.style import abbreviations, capitals, end_mark


class CorrectionRules:
    """Blocking; one instance serves all threads."""

    def __init__(
        self,
        engine: GrammarEngine,
        statistics: WordStatistics,
        words: CorrectionWords,
        config: CorrectionConfig,
    ) -> None:
        self._english = English(engine, statistics, words)
        self._abbreviations = words.abbreviations
        self._casual = frozenset(config.casual_contexts)

    def is_english(self, text: str) -> bool:
        return self._english.is_english(text)

    def is_worse(self, before: str, after: str) -> bool:
        """Whether rules find more mistakes in `after`."""
        if not self._english.is_english(before):
            return self._english.is_english(after)
        return len(self._english.correct(after)) > len(self._english.correct(before))

    def mistakes(self, text: str, request: CorrectionRequest) -> list[Edit]:
        """The edits that correct a piece; none where it is not English."""
        if not self._english.is_english(text):
            return []
        style = request.style
        casual = request.app_context in self._casual and not style.expand_abbreviations
        edits = self._english.correct(text, casual=casual)
        if style.auto_punctuate is False:
            return [edit for edit in edits if edit.kind != "punctuation"]
        return edits

    def styled(self, text: str, piece: Passage, request: CorrectionRequest) -> list[Edit]:
        """The edits that give a corrected piece the requested style."""
        style = request.style
        english = self._english.is_english(text)
        edits: list[Edit] = []
        if english and style.use_contractions is not None:
            edits = self._then(text, edits, contractions(text, style.use_contractions))
        if english and style.expand_abbreviations:
            now = apply_edits(text, edits)
            # "ASAP" looks like an identifier, and is what shall be written out.
            found = abbreviations(now, self._abbreviations)
            edits = self._then(text, edits, found, but="identifier")
        capitalize = style.auto_capitalize
        if capitalize or (capitalize is None and english):
            now = apply_edits(text, edits)
            edits = self._then(text, edits, capitals(now, "en", protected_spans(now)))
        punctuate = style.auto_punctuate
        if punctuate is None:
            punctuate = request.app_context not in self._casual
        if english and punctuate and piece.ends_paragraph:
            now = apply_edits(text, edits)
            mark = end_mark(now, protected_spans(now))
            edits = self._then(text, edits, [mark] if mark else [])
        return edits

    def _then(
        self, text: str, edits: list[Edit], more: Iterable[Edit], but: str | None = None
    ) -> list[Edit]:
        held = protected_spans(apply_edits(text, edits), self._english.spelled_with_digits)
        kept = [span for span in held if span.kind != but]
        return compose(text, edits, respecting(kept, more))


def load_rules(engine: GrammarEngine, config: CorrectionConfig) -> CorrectionRules:
    """With the words of `configs/correction_words.yaml`."""
    words = load_yaml(CorrectionWords, "correction_words")
    return CorrectionRules(engine, WordStatistics(), words, config)
