"""Joins aligned tokens into words with their times."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, zip_longest
from typing import Any

from faster_whisper.transcribe import merge_punctuations

from models.stt.base import Word

MEL_FRAMES_PER_S = 100
INSTANT_S = 0.1  # longest duration of a word that the alignment put on one instant
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
    return tuple(with_lengths(words))


def with_lengths(words: Sequence[Word]) -> Iterator[Word]:
    """Yields the words with a length each: words that the alignment put on one instant share the
    time of the word that they touch, in proportion to their letters. A word that touches none takes
    a little of the time before it, or after it at the beginning."""
    runs: list[list[Word]] = []
    for word in words:
        touches = bool(runs) and word.start <= runs[-1][-1].end
        is_instant = word.end <= word.start or (touches and runs[-1][-1].end <= runs[-1][0].start)
        if touches and is_instant:
            runs[-1].append(word)
        else:
            runs.append([word])
    before_s = 0.0
    for run, after in zip_longest(runs, runs[1:]):
        start_s, end_s = run[0].start, run[-1].end
        if end_s <= start_s:
            start_s = max(before_s, round(start_s - INSTANT_S, 2))
        if end_s <= start_s:
            end_s = min(after[0].start if after else math.inf, start_s + INSTANT_S)
        before_s = end_s
        shares = list(accumulate(len(word.word) for word in run))
        steps = [round(start_s + (end_s - start_s) * share / shares[-1], 2) for share in shares]
        for word, (start, end) in zip(run, pairwise([start_s, *steps]), strict=True):
            yield replace(word, start=start, end=end)
