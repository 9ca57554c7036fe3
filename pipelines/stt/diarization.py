"""Speaker diarization: embeddings of short windows, speaker clustering, a speaker for each word.

The number of speakers is not given: agglomerative clustering by average cosine distance joins
windows while the groups are alike. The words then take the cheapest path through the speakers
(Viterbi), where a change of speaker costs more within speech than at a pause.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, groupby, pairwise, product
from string import ascii_uppercase
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from models.speaker.base import Embeddings
from models.stt.base import Segment, Word, shifted
from models.vad.base import VAD_SAMPLE_RATE
from pipelines.audio.segments import Spans

WINDOW_S = 1.6  # the length that the encoder was trained on
HOP_S = 0.4
MIN_WINDOW_S = 0.4  # an embedding of less is useless
MIN_SIMILARITY = 0.7  # of the windows of one speaker, on average
# Of the mean embeddings of one speaker with much speech, and what is taken off it, divided by the
# seconds of speech. Chosen and measured in `benchmarks.stt.diarization`, on different speakers.
SAME_SIMILARITY = 0.8
DOUBT = 0.15
KNOWN_SIMILARITY = 0.75  # to a known speaker
MIN_SPEAKER_S = 2.0  # of speech; a group with less joins another speaker
CHANGE_COST = 0.12  # of another speaker within speech, in seconds of full dissimilarity
PAUSE_CHANGE_COST = 0.02  # the same after a pause
FULL_PAUSE_S = 0.3  # a longer pause makes a change no likelier
LEAST_S = 0.1  # of the length of a unit
TURN_PAUSE_S = 0.5  # of a speaker with a channel of their own

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WindowEmbeddings:
    """The speaker embeddings of a file."""

    windows: NDArray[np.float64]  # [k, 2], where each begins and ends, in seconds
    embeddings: Embeddings  # [k, 256]


@dataclass(eq=False, slots=True)
class SpeakerVoice:
    """What was heard of a speaker, or the recorded voice of a known one."""

    total: Scores = field(repr=False)  # the sum of the embeddings, weighted by seconds
    seconds: float
    label: str = ""

    @property
    def mean(self) -> Scores:
        return self.total / np.linalg.norm(self.total)

    def likeness(self, other: "SpeakerVoice", least: float = SAME_SIMILARITY) -> float:
        """Not negative: the same speaker."""
        doubt = DOUBT / self.seconds + DOUBT / other.seconds
        return float(self.mean @ other.mean) - least + doubt

    def add(self, other: "SpeakerVoice") -> None:
        self.total, self.seconds = self.total + other.total, self.seconds + other.seconds

    def name_of(self, known: "Sequence[SpeakerVoice]") -> str | None:
        """The label of the known speaker with this voice."""
        found = {self.likeness(one, KNOWN_SIMILARITY): one.label for one in known}
        return found[max(found)] if found and max(found) >= 0 else None


@dataclass(frozen=True, slots=True)
class SpeakerUtterance:
    """Consecutive speech of one speaker. Times are seconds."""

    speaker: str  # A, B, … in order of appearance, or the name of a known speaker
    start: float
    end: float
    text: str
    words: tuple[Word, ...]

    def shifted(self, seconds: float) -> "SpeakerUtterance":
        """With `seconds` added to its times."""
        start, end = self.start + seconds, self.end + seconds
        return replace(self, start=start, end=end, words=shifted(self.words, seconds))


HeardSpeakers: TypeAlias = dict[str, tuple[list[float], float]]
"""By name what was heard of the speakers so far, as `total` and `seconds` of a SpeakerVoice."""


def link_speakers(
    utterances: Sequence[SpeakerUtterance], voices: WindowEmbeddings, before: HeardSpeakers
) -> tuple[SpeakerUtterance, ...]:
    """The utterances of the next part of a recording under the names of the speakers `before` it,
    to whom it adds what it heard."""
    middles = voices.windows.mean(axis=1)
    heard: dict[str, SpeakerVoice] = {}
    for name in sorted({one.speaker for one in utterances}):
        mine = [one for one in utterances if one.speaker == name]
        inside = np.any([(one.start <= middles) & (middles <= one.end) for one in mine], axis=0)
        if inside.any():
            heard[name] = _part(voices, inside)
    known = {name: SpeakerVoice(np.array(total), s) for name, (total, s) in before.items()}
    pairs = sorted((-heard[a].likeness(known[b]), a, b) for a, b in product(heard, known))
    names: dict[str, str] = {}
    for unlikeness, name, other in pairs:
        if unlikeness <= 0 and name not in names and other not in names.values():
            names[name] = other
    letters = (letter for letter in speaker_letters() if letter not in known)
    for name, voice in heard.items():
        if name in names:
            voice.add(known[names[name]])
        else:
            names[name] = next(letters)
        before[names[name]] = voice.total.tolist(), voice.seconds
    first = next(speaker_letters())
    return tuple(replace(one, speaker=names.get(one.speaker, first)) for one in utterances)


def voice_windows(spans: Spans) -> Spans:
    """The windows of a segment's spans to compute embeddings of, in samples from its start."""
    return tuple(window for start, end in spans for window in _windows(start, end))


def _windows(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Windows of one size at equal distances, and one up to the end; a shorter span is one."""
    size = min(end - start, round(WINDOW_S * VAD_SAMPLE_RATE))
    if size >= MIN_WINDOW_S * VAD_SAMPLE_RATE:
        hop = round(HOP_S * VAD_SAMPLE_RATE)
        yield from ((at, at + size) for at in range(start, end - size, hop))
        yield end - size, end


def cluster_speakers(
    segments: Sequence[Segment],
    voices: WindowEmbeddings,
    separator: str,
    known: Sequence[SpeakerVoice] = (),
) -> tuple[SpeakerUtterance, ...]:
    """The utterances of a file, in order. Without embeddings there is one speaker."""
    # The segment itself where the engine gave no words.
    units = [unit for segment in segments for unit in units_of(segment.words) or [segment]]
    labels = SpeakerLabels(known).label(units, voices)
    return utterances_of(labels, units, separator)


def utterances_of(
    speakers: Sequence[str], units: Sequence[Segment], separator: str
) -> tuple[SpeakerUtterance, ...]:
    """The utterances of units, each with its speaker's label."""
    utterances = []
    for speaker, group in groupby(zip(speakers, units, strict=True), key=lambda pair: pair[0]):
        said = [unit for _, unit in group]
        utterances.append(
            SpeakerUtterance(
                speaker=speaker,
                start=said[0].start,
                end=said[-1].end,
                text=separator.join(unit.text for unit in said),
                words=tuple(word for unit in said for word in unit.words),
            )
        )
    return tuple(utterances)


def turns_of(speaker: str, words: Sequence[Word], separator: str) -> Iterator[SpeakerUtterance]:
    """The speech of one speaker, a turn up to each pause of TURN_PAUSE_S."""
    pauses = (after.start - word.end > TURN_PAUSE_S for word, after in pairwise(words))
    numbers = [str(number) for number in accumulate(pauses, initial=0)][: len(words)]
    turns = utterances_of(numbers, units_of(words), separator)
    return (replace(turn, speaker=speaker) for turn in turns)


def speaker_letters() -> Iterator[str]:
    """A to Z, then AA, AB and so on."""
    return map("".join, chain.from_iterable(product(ascii_uppercase, repeat=n) for n in count(1)))


def units_of(words: Sequence[Word]) -> list[Segment]:
    """Each word as a segment."""
    return [Segment(one.word, one.start, one.end, 0.0, 0.0, (one,)) for one in words]


class SpeakerLabels:
    """The speakers of one file, or of one session, whose utterances are labelled one by one."""

    def __init__(self, known: Sequence[SpeakerVoice] = (), least_s: float = MIN_SPEAKER_S) -> None:
        """`known` speakers have their own labels; a new speaker has `least_s` of speech."""
        self._known, self._least_s = known, least_s
        self._names = {one.label for one in known}
        letters = (label for label in speaker_letters() if label not in self._names)
        self._last = next(letters)
        self._letters = chain((self._last,), letters)
        self._speakers: list[SpeakerVoice] = []

    def label(self, units: Sequence[Segment], voices: WindowEmbeddings) -> list[str]:
        """The label of each unit, which stays; blocking.

        Speech without windows, as there is so little of it, is the last speaker's.
        """
        if not units or not len(voices.windows):
            return [self._last] * len(units)
        before, found = len(self._speakers), joined(self._speakers, voices, self._least_s)
        means = np.stack([one.mean for one in found])
        chosen = _choose(units, voices, means)
        nearest = np.argmax(voices.embeddings @ means.T, axis=1)
        for number in np.unique(nearest):
            part = _part(voices, nearest == number)
            if number < before:
                self._speakers[number].add(part)
            else:
                found[number] = part
        self._speakers += found[before:]
        told = [self._speakers[number] for number in chosen]
        for speaker in told:
            if speaker.label not in self._names:
                name = speaker.name_of(self._known)
                speaker.label = name or speaker.label or next(self._letters)
        self._speakers = [one for one in self._speakers if one.label]
        self._last = told[-1].label
        return [speaker.label for speaker in told]


def joined(
    speakers: Sequence[SpeakerVoice], voices: WindowEmbeddings, least_s: float
) -> list[SpeakerVoice]:
    """The speakers, each with the groups of windows that are like them, and new ones.

    A group with less than `least_s` of speech makes no new one, unless it is the first.
    """
    found = [replace(one) for one in speakers]
    groups = np.zeros(len(voices.windows), np.int64)
    if len(groups) > 1:
        tree = linkage(voices.embeddings.astype(np.float64), "average", metric="cosine")
        groups = fcluster(tree, 1 - MIN_SIMILARITY, "distance").astype(np.int64)
    parts = [_part(voices, groups == group) for group in np.unique(groups)]
    for part in sorted(parts, key=lambda one: -one.seconds):
        nearest = max(found, key=part.likeness, default=None)
        if nearest is not None and part.likeness(nearest) >= 0:
            nearest.add(part)
        elif nearest is None or part.seconds >= least_s:
            found.append(part)
    return found


def _part(voices: WindowEmbeddings, mine: NDArray[np.bool_]) -> SpeakerVoice:
    """What some of the windows, in order of their starts, have of a voice."""
    ends = np.maximum.accumulate(voices.windows[mine, 1])
    starts = np.maximum(voices.windows[mine, 0], np.concatenate([[-np.inf], ends[:-1]]))
    seconds = float(np.maximum(voices.windows[mine, 1] - starts, 0).sum())
    return SpeakerVoice(voices.embeddings[mine].mean(axis=0).astype(np.float64) * seconds, seconds)


def _choose(units: Sequence[Segment], voices: WindowEmbeddings, means: Scores) -> list[int]:
    """The speakers of the units with the highest similarity, less the costs of changes."""
    alike = voices.embeddings @ means.T
    middles = voices.windows.mean(axis=1)
    reaches = (voices.windows[:, 1] - voices.windows[:, 0]) / 2 + LEAST_S
    best = np.zeros(len(means))
    backward: list[NDArray[np.int64]] = []
    for number, unit in enumerate(units):
        away = np.abs(middles - (unit.start + unit.end) / 2) / reaches
        # The middle of a window counts most; a unit outside of all has the nearest.
        weights = np.maximum(1.1 - away, 0) if away.min() < 1.1 else away == away.min()
        from_best = np.arange(len(best))
        if number:
            share = min(max(unit.start - units[number - 1].end, 0.0) / FULL_PAUSE_S, 1.0)
            cost = CHANGE_COST + share * (PAUSE_CHANGE_COST - CHANGE_COST)
            change = best.max() - cost
            from_best = np.where(best >= change, from_best, int(best.argmax()))
            best = np.maximum(best, change)
        backward.append(from_best)
        best = best + weights @ alike / weights.sum() * max(unit.end - unit.start, LEAST_S)
    chosen = [int(best.argmax())]
    for from_best in reversed(backward[1:]):
        chosen.append(int(from_best[chosen[-1]]))
    return chosen[::-1]
