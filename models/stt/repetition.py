"""Repetitions: how often a word is said, counted in the sound.

A decoder that writes a word again and again loses count, or never leaves the loop: each repetition
makes the next more likely. In the sound a repeated word is a pattern that follows itself, with
stripes beside the diagonal of its self-similarity matrix (Foote, "Visualizing music and audio using
self-similarity", 1999). The pattern is followed from its clearest place in both directions, each
time to the most similar place about a period away, and looked for again after a break.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.mel import FRAME_SAMPLES, HOP_SAMPLES, MEL_SAMPLE_RATE, frames_of, mel_power
from models.stt.base import STT_SAMPLE_RATE, Word, shifted

AROUND_S = 3.0  # time after a run in which words may be its end, misheard
MISHEARD = 1.5  # with this many times the text's repetitions in the sound, the end was misheard
LEAST_TIMES = 3  # fewest repetitions in a row that are counted in the sound
LONGEST_UNIT = 4  # words
MOST_LETTERS_PER_S = 25.0  # in fast speech
EQUAL_DIGITS = re.compile(r"(\d)\1{7,}")
FEW = 4  # repetitions that a decoder counts correctly; a shortened signal keeps as many
BANDS = 40
AUDIBLE = 1e-3  # share of loud frames' power; pauses are below it, and left out, as they differ
FRAMES_PER_S = MEL_SAMPLE_RATE // HOP_SAMPLES
SMOOTHING = np.array([1.0, 3.0, 4.0, 3.0, 1.0]) / 12  # weights over neighbouring frames
SHORTEST_PERIOD, LONGEST_PERIOD = 10, 150  # frames of 10 ms
FIRST_PEAK = 0.75  # share of the highest peak: multiples of a period are as similar
FASTER, SLOWER = 0.7, 1.45  # ratio of an interval to the period
# Least similarity of a word to the repetition beside it, and after a break. On the tuned half of
# `benchmarks.stt.repetitions`, a slowly changing word has at least 0.4, other words at most 0.3.
SIMILAR, ALIKE = 0.35, 0.6


class Run(NamedTuple):
    """A part of a text that repeats itself."""

    first: int = 0  # index of its first word
    size: int = 1  # words of its unit
    times: int = 0  # 0 where nothing follows itself

    @property
    def after(self) -> int:
        """Index of the word after the run."""
        return self.first + self.size * self.times


def longest_run(words: Sequence[Word]) -> Run:
    """Finds the longest part that repeats itself."""
    plain = list(map(_plain, words))
    longest = Run()
    for size in range(1, LONGEST_UNIT + 1):
        start = 0
        for index in range(size, len(plain) + 1):
            if index < len(plain) and plain[index] == plain[index - size]:
                continue
            run = Run(start, size, times=(index - start) // size)
            if run.times > 1 and run.after - run.first > longest.after - longest.first:
                longest = run
            start = index - size + 1
    return longest


def spread(words: Sequence[Word]) -> list[Word]:
    """Splits a word of many equal digits, such as "66666666", into words of one digit each."""
    spread = list[Word]()
    for word in words:
        pieces = list(word.word) if EQUAL_DIGITS.fullmatch(word.word) else [word.word]
        step = (word.end - word.start) / len(pieces)
        for number, piece in enumerate(pieces):
            start = word.start + number * step
            spread.append(replace(word, word=piece, start=start, end=start + step))
    return spread


def gathered(words: Sequence[Word]) -> tuple[Word, ...]:
    """Joins equal digits that follow each other without a mark."""
    gathered = list[Word]()
    for word in words:
        if gathered and word.word.isdigit() and set(gathered[-1].word) == set(word.word):
            before = gathered.pop()
            word = replace(word, word=before.word + word.word, start=before.start)
        gathered.append(word)
    return tuple(gathered)


def onsets_s(pcm: Pcm, words: Sequence[Word] = ()) -> list[float]:
    """Finds the times (s) at which the repetitions of a sound begin and the last one ends; none if
    no sound repeats. With the `words` of a text, searches only near their longest run."""
    run = longest_run(words)
    from_s = words[run.first].start if run.first else 0.0
    ends = run.times == 0 or run.after == len(words)
    until_s = np.inf if ends else words[run.after - 1].end + AROUND_S
    padded = np.pad(pcm, FRAME_SAMPLES // 2)
    bands = mel_power(frames_of(padded), BANDS)
    power = bands.sum(axis=1)
    kept = np.flatnonzero(power > AUDIBLE * np.percentile(power, 95))
    kept = kept[(kept >= from_s * FRAMES_PER_S) & (kept < until_s * FRAMES_PER_S)]
    if len(kept) < LEAST_TIMES * SHORTEST_PERIOD:
        return []
    likeness = _self_similarity(np.log(bands[kept] + 1e-10))
    period = _period(likeness)
    if period is None:
        return []
    places = _Pattern(likeness, power[kept], period).places()
    if len(places) < 2:
        return []
    seconds = [float(kept[place]) / FRAMES_PER_S for place in places]
    if run.times and 2 * seconds[0] > words[run.first].start + words[run.after - 1].end:
        return []  # another sound, such as an alarm
    unit = [_plain(word) for word in words[run.first : run.first + run.size]]
    shortest_s = len("".join(unit)) / MOST_LETTERS_PER_S
    if unit and (len(set(unit)) < len(unit) or np.median(np.diff(seconds)) < shortest_s):
        return []  # a word within the unit, not the unit
    last = kept[places[-1] : places[-1] + int(SLOWER * period)]
    quietest = _quietest(power[last], int(FASTER * period)) if len(last) > period else len(last) - 1
    return [*seconds, float(last[quietest]) / FRAMES_PER_S]


def recounted(
    words: Sequence[Word], onsets: Sequence[float], *, is_few: bool = False
) -> tuple[Word, ...]:
    """Writes the unit of the longest run among the words as often as the sound has it. `onsets` are
    the times at which the repetitions begin, and the end of the last one. If the sound has many
    more of them than the text, words that follow the run but end before the last repetition does
    are left out as misheard, unless `is_few`: only few of the repetitions were decoded."""
    run = longest_run(words)
    units = [words[at : at + run.size] for at in range(run.first, run.after, run.size)]
    middle = [units[1]] * (len(onsets) - 3)
    repeated = []
    units = [units[0], *middle, units[-1]]
    for unit, (start, end) in zip(units, pairwise(onsets), strict=True):
        for number, word in enumerate(unit):
            begin = start + (end - start) * number / run.size
            stop = start + (end - start) * (number + 1) / run.size
            repeated.append(replace(word, start=round(begin, 2), end=round(stop, 2)))
    rest = tuple(words[run.after :])
    if not is_few and len(onsets) - 1 >= MISHEARD * run.times:
        rest = tuple(word for word in rest if word.end > onsets[-1])
    last, end = repeated[-1], min([onsets[-1], *(word.start for word in rest)])
    mark = last.word if rest else last.word.rstrip(",、，")
    repeated[-1] = replace(last, word=mark, end=round(max(end, last.start), 2))
    return (*words[: run.first], *repeated, *rest)


def shortened(pcm: Pcm, onsets: Sequence[float]) -> tuple[Pcm, float, float]:
    """Removes the middle of a sound that has at least four repetitions. The first two and the last
    two repetitions stay; of four, the first two and the last. Also returns the time at which the
    removed part began, and its length, both in seconds."""
    last_kept = 2 if len(onsets) > FEW + 1 else 1
    first, last = (round(at * STT_SAMPLE_RATE) for at in (onsets[2], onsets[-1 - last_kept]))
    short = np.concatenate([pcm[:first], pcm[last:]])
    return short, first / STT_SAMPLE_RATE, (last - first) / STT_SAMPLE_RATE


def around(words: Sequence[Word], at_s: float, left_out_s: float) -> tuple[Word, ...]:
    """Gives words of a shortened signal their times in the whole. Their longest run then lasts from
    before the removed repetitions to after them."""
    run = longest_run(words)
    before = [word for word in words if word.start < at_s]
    whole = [*before, *shifted(words[len(before) :], left_out_s)]
    first = whole[run.first]
    whole[run.first] = replace(first, start=min(first.start, at_s))
    last = whole[run.after - 1]
    whole[run.after - 1] = replace(last, end=max(last.end, at_s + left_out_s))
    return tuple(whole)


def _plain(word: Word) -> str:
    return re.sub(r"\W+", "", word.word.lower()) or word.word


def _self_similarity(bands: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosines between all frames, [n, n]."""
    centred = bands - bands.mean(axis=0)
    smooth = np.apply_along_axis(np.convolve, 0, centred, SMOOTHING, "same")
    smooth /= np.linalg.norm(smooth, axis=1, keepdims=True) + 1e-6
    smooth = smooth.astype(np.float32)
    return np.asarray(smooth @ smooth.T)


def _period(likeness: NDArray[np.float32]) -> int | None:
    """Smallest number of frames after which the sound is most like itself."""
    longest = min(LONGEST_PERIOD, int(0.45 * len(likeness)))
    means = np.array([likeness.diagonal(lag).mean() for lag in range(longest)])
    peaks = [
        lag
        for lag in range(SHORTEST_PERIOD + 1, longest - 2)
        if means[lag] == means[max(SHORTEST_PERIOD, lag - 6) : lag + 7].max()
    ]
    highest = max((means[lag] for lag in peaks), default=0.0)
    return next((lag for lag in peaks if means[lag] >= FIRST_PEAK * highest), None)


def _quietest(power: NDArray[np.float32], first: int) -> int:
    return first + int(np.argmin(np.convolve(np.log(power[first:] + 1e-10), np.ones(3), "same")))


class _Pattern:
    """The repeated sound of a signal: where it is clearest, and everything like it."""

    def __init__(
        self, likeness: NDArray[np.float32], power: NDArray[np.float32], period: int
    ) -> None:
        self._likeness = likeness
        self._period = period
        self._window = max(6, int(0.8 * period))
        beside = np.convolve(likeness.diagonal(period), np.ones(period), "valid")
        clearest = int(np.argmax(beside))
        self._middle = clearest + _quietest(power[clearest : clearest + period], 0)

    def places(self) -> list[int]:
        """The frames where it begins, in order."""
        places = [self._middle, *self._walk(1), *self._walk(-1)]
        alike = [self._alike(self._middle, place) for place in range(len(self._likeness))]
        after_breaks = [place for place, value in enumerate(alike) if value >= ALIKE]
        for place in sorted(after_breaks, key=alike.__getitem__, reverse=True):
            if all(abs(place - other) >= FASTER * self._period for other in places):
                places.append(place)
        return sorted(places)

    def _walk(self, direction: int) -> list[int]:
        place, places = self._middle, list[int]()
        lags = range(max(6, int(FASTER * self._period)), int(SLOWER * self._period) + 1)
        while True:
            likeness, lag = max((self._alike(place, place + direction * lag), lag) for lag in lags)
            if likeness < SIMILAR:
                return places
            place += direction * lag
            places.append(place)

    def _alike(self, one: int, other: int) -> float:
        """How alike the sounds are that begin in two frames; -1 outside the signal."""
        length = min(self._window, len(self._likeness) - max(one, other))
        if min(one, other) < 0 or length < self._period / 2:
            return -1.0
        return float(self._likeness[one : one + length, other : other + length].diagonal().mean())
