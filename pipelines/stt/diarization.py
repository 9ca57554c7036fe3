"""Speaker diarization: embeddings of short windows, speaker clustering, a speaker for each word.

The number of speakers is not given: agglomerative clustering by average cosine distance joins
windows while the groups are alike. The words then take the cheapest path through the speakers
(Viterbi), where a change of speaker costs more within speech than at a pause.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, groupby, pairwise, product
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from models.audio import Pcm
from models.speaker.base import Embedding, Embeddings, SpeakerEncoder, mean_embedding
from models.stt.base import Segment, Word, shifted
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from pipelines.audio.segments import Spans, SpeechSegment, spans_of

WINDOW_S = 1.6  # the length that the encoder was trained on
HOP_S = 0.4
MIN_WINDOW_S = 0.4  # an embedding of less is useless
MIN_SIMILARITY = 0.7  # of the windows of one speaker, on average
# Of the mean embeddings of one speaker with much speech, and what is taken off it, divided by the
# seconds of speech. Chosen and measured in `benchmarks.stt.diarization`, on different speakers.
SAME_SIMILARITY = 0.8
DOUBT = 0.18
KNOWN_SIMILARITY, KNOWN_DOUBT = 0.75, 0.15  # the same, to a known speaker
MIN_SPEAKER_S = 2.0  # of speech; a group with less joins another speaker
MIN_NEW_S = 0.8  # the same where little is heard yet
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

    def likeness(
        self, other: "SpeakerVoice", least: float = SAME_SIMILARITY, doubt: float = DOUBT
    ) -> float:
        """Not negative: the same speaker."""
        allowance = doubt / self.seconds + doubt / other.seconds
        return float(self.mean @ other.mean) - least + allowance

    def add(self, other: "SpeakerVoice") -> None:
        self.total, self.seconds = self.total + other.total, self.seconds + other.seconds

    def name_of(self, known: "Sequence[SpeakerVoice]") -> str | None:
        """The label of the known speaker with this voice."""
        found = {self.likeness(one, KNOWN_SIMILARITY, KNOWN_DOUBT): one.label for one in known}
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


def voice_of(pcm: Pcm, vad: VADEngine, encoder: SpeakerEncoder) -> Embedding | None:
    """The mean of what diarization compares, of float32 [n] at 16 kHz; None unless one person
    speaks. Blocking."""
    segment, frame = SpeechSegment(0, len(pcm)), vad.capabilities.frame_samples
    windows = voice_windows(spans_of(vad.probabilities(pcm), frame, segment))
    embeddings = encoder.embed_pieces(pcm, windows)
    places = np.array(windows).reshape(-1, 2) / VAD_SAMPLE_RATE
    voices = joined((), WindowEmbeddings(places, embeddings), MIN_NEW_S)
    return mean_embedding(embeddings) if len(voices) == 1 else None


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
    speakers: "SpeakerLabels",
) -> tuple[SpeakerUtterance, ...]:
    """The utterances of a file, or of its next part, in order. Without embeddings there is one
    speaker."""
    # The segment itself where the engine gave no words.
    units = [unit for segment in segments for unit in units_of(segment.words) or [segment]]
    return utterances_of(speakers.label(units, voices), units, separator)


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
    """The speakers of one recording, or of one session, whose speech is labelled part by part."""

    def __init__(
        self,
        known: Sequence[SpeakerVoice] = (),
        least_s: float = MIN_SPEAKER_S,
        heard: Sequence[SpeakerVoice] = (),
    ) -> None:
        """`known` speakers have their own labels, and those `heard` before keep theirs; a new
        speaker has `least_s` of speech."""
        self._known, self._least_s, self.heard = known, least_s, list(heard)
        self._names = {one.label for one in known}
        taken = self._names | {one.label for one in heard}
        letters = (label for label in speaker_letters() if label not in taken)
        self._first = next(letters)
        self._letters = chain((self._first,), letters)

    def label(self, units: Sequence[Segment], voices: WindowEmbeddings) -> list[str]:
        """The label of each unit, which stays; blocking.

        Speech without windows, as there is so little of it, is the last speaker's.
        """
        if not units or not len(voices.windows):
            return [self.heard[-1].label if self.heard else self._first] * len(units)
        before, found = len(self.heard), joined(self.heard, voices, self._least_s)
        means = np.stack([one.mean for one in found])
        chosen = _choose(units, voices, means)
        nearest = np.argmax(voices.embeddings @ means.T, axis=1)
        for number in np.unique(nearest):
            part = _part(voices, nearest == number)
            if number < before:
                self.heard[number].add(part)
            else:
                found[number] = part
        self.heard += found[before:]
        told = [self.heard[number] for number in chosen]
        for speaker in told:
            if speaker.label not in self._names:
                name = speaker.name_of(self._known)
                speaker.label = name or speaker.label or next(self._letters)
        labelled = (one for one in self.heard if one.label)
        self.heard = sorted(labelled, key=lambda one: one is told[-1])  # who speaks last
        return [speaker.label for speaker in told]


def joined(
    speakers: Sequence[SpeakerVoice], voices: WindowEmbeddings, least_s: float
) -> list[SpeakerVoice]:
    """The speakers, each with the groups of windows that are like them, and new ones.

    One with less than `least_s` of speech is none, unless it is the first. Groups that are alike
    count together: the windows of a short turn are often several small groups.
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
        else:
            found.append(part)
    kept = max(1, len(speakers))
    return found[:kept] + [one for one in found[kept:] if one.seconds >= least_s]


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
