"""Joins aligned tokens into words with their times."""

from collections.abc import Mapping
from typing import Any

from faster_whisper.transcribe import merge_punctuations

from models.stt.base import Word

MEL_FRAMES_PER_S = 100
PREPENDED = "\"'“¿([{-"  # punctuation marks that belong to the word after them
APPENDED = "\"'.。,，!！?？:：”)]}、"  # punctuation marks that belong to the word before them


def words_from(
    alignment: list[Mapping[str, Any]], duration_s: float, *, is_spaced: bool
) -> tuple[Word, ...]:
    """Converts the timings of faster-whisper; in spaced languages, a word ends at a space."""
    merge_punctuations(alignment, PREPENDED, APPENDED)
    words: list[Word] = []
    for timing in alignment:
        if word := timing["word"].strip():
            start = min(float(timing["start"]), duration_s)
            end = min(max(float(timing["end"]), start), duration_s)
            confidence = round(float(timing["probability"]), 4)
            # faster-whisper's tokenizer splits "8.30" and "well-known".
            if words and is_spaced and timing["word"][0] != " ":
                before = words.pop()
                word, start = before.word + word, before.start
                confidence = min(before.confidence, confidence)
            words.append(Word(word, round(start, 2), round(end, 2), confidence))
    return tuple(words)
