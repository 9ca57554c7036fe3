"""Splits words with times into sentences and paragraphs."""

from collections.abc import Callable, Sequence

from models.stt.base import Word
from pipelines.stt.subtitles import SENTENCE_ENDS

PARAGRAPH_PAUSE_S = 1.0  # a longer pause after a sentence ends the paragraph
MAX_SENTENCES = 5  # per paragraph


def cut(words: Sequence[Word], ends: Callable[[Word, Word], bool]) -> list[list[Word]]:
    """Splits words into parts. A part ends where `ends(word, next_word)` is true."""
    parts: list[list[Word]] = []
    for word in words:
        if not parts or ends(parts[-1][-1], word):
            parts.append([])
        parts[-1].append(word)
    return parts


def sentences_of(words: Sequence[Word]) -> list[list[Word]]:
    """Splits words into sentences, by their punctuation."""
    return cut(words, lambda before, _: before.word.endswith(SENTENCE_ENDS))


def paragraphs_of(words: Sequence[Word]) -> list[list[list[Word]]]:
    """Groups the sentences of words into paragraphs."""
    groups: list[list[list[Word]]] = []
    for sentence in sentences_of(words):
        last = groups[-1] if groups else None
        pauses = last is not None and sentence[0].start - last[-1][-1].end > PARAGRAPH_PAUSE_S
        if last is None or pauses or len(last) == MAX_SENTENCES:
            groups.append([])
        groups[-1].append(sentence)
    return groups
