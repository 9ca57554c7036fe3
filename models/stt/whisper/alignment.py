"""Joins aligned tokens into words with their times."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
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
    return tuple(_with_lengths(words))


def _with_lengths(words: list[Word]) -> Iterator[Word]:
    """Yields the words with a length each: words that the alignment put on one instant share the
    time of the word that they touch, if any, in proportion to their letters."""
    runs: list[list[Word]] = []
    for word in words:
        touches = bool(runs) and word.start <= runs[-1][-1].end
        is_instant = word.end <= word.start or (touches and runs[-1][-1].end <= runs[-1][0].start)
        if touches and is_instant:
            runs[-1].append(word)
        else:
            runs.append([word])
    for run in runs:
        start_s = run[0].start
        shares = list(accumulate(len(word.word) for word in run))
        seconds = (run[-1].end - start_s) / shares[-1]
        for word, share in zip(run, shares, strict=True):
            end_s = word.end if len(run) == 1 else round(run[0].start + seconds * share, 2)
            yield replace(word, start=start_s, end=end_s)
            start_s = end_s
