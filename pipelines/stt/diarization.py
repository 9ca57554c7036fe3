"""Speaker diarization: embeds short windows, clusters speakers, and assigns one to each word.

The number of speakers is unknown: agglomerative clustering by average cosine distance joins windows
while the groups are alike. Words then take the cheapest path through the speakers (Viterbi), where
a change of speaker costs more within speech than at a pause."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, combinations, count, groupby, pairwise, product
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from models.audio import Pcm
from models.speaker.base import Embedding, Embeddings, SpeakerEncoder, mean_embedding
from models.stt.base import Segment, Word, shifted
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from pipelines.audio.segments import Spans, SpeechSegment, spans_of

WINDOW_S = 1.6  # length on which the encoder was trained
HOP_S = 0.4
MIN_WINDOW_S = 0.4  # shorter windows have useless embeddings
MIN_SIMILARITY = 0.7  # average similarity of the windows of one speaker
# Similarity of the mean embeddings of one speaker, and the allowance for doubt, which is divided by
# the seconds of speech. Chosen and measured on different speakers (`benchmarks.stt.diarization`).
SAME_SIMILARITY = 0.8
DOUBT = 0.18
# The same for a speaker with a recorded voice.
KNOWN_SIMILARITY = 0.75
KNOWN_DOUBT = 0.15
MIN_SPEAKER_S = 2.0  # speech of a speaker; a group with less joins another speaker
# Noise, echo or another pitch in a part of a recording also form groups. Only one third of the
# windows of each group is compared, the least like the other: those across a change drop out.
# Measured on five speakers of LibriSpeech: at least 0.52 in 80 altered recordings of one, and below
# 0.51 in 17 of 20 recordings of two with turns of 10 s, in 15 with 5 s, and in 7 with 3 s.
SUREST_SHARE = 1 / 3
OTHER_SIMILARITY = 0.51
MIN_NEW_S = 0.8  # speech of a new speaker in a live session
CHANGE_COST = 0.12  # cost of a change of speaker within speech, in seconds of full dissimilarity
PAUSE_CHANGE_COST = 0.02  # cost of a change after a full pause
FULL_PAUSE_S = 0.3  # longer pauses make a change no likelier
LEAST_S = 0.1  # shortest length assumed for a unit
TURN_PAUSE_S = 0.5  # pause that ends a turn of a speaker with a channel of their own

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WindowEmbeddings:
    windows: NDArray[np.float64]  # [k, 2], start and end of each in seconds
    embeddings: Embeddings  # [k, 256]


@dataclass(eq=False, slots=True)
class SpeakerVoice:
    """Voice of a speaker, from the speech so far or from a recording of a known speaker."""

    total: Scores = field(repr=False)  # sum of the embeddings, weighted by seconds
    seconds: float
    label: str = ""

    @property
    def mean(self) -> Scores:
        return self.total / np.linalg.norm(self.total)

    def likeness(
        self, other: "SpeakerVoice", least: float = SAME_SIMILARITY, doubt: float = DOUBT
    ) -> float:
        """Compares two voices; the same speaker if not negative."""
        allowance = doubt / self.seconds + doubt / other.seconds
        return float(self.mean @ other.mean) - least + allowance

    def add(self, other: "SpeakerVoice") -> None:
        self.total = self.total + other.total
        self.seconds += other.seconds

    def name_of(self, known: "Sequence[SpeakerVoice]") -> str | None:
        """Returns the label of the known speaker with this voice, if any."""
        labels = {
            self.likeness(voice, KNOWN_SIMILARITY, KNOWN_DOUBT): voice.label for voice in known
        }
        return labels[max(labels)] if labels and max(labels) >= 0 else None


@dataclass(frozen=True, slots=True)
class SpeakerUtterance:
    """Consecutive speech of one speaker. Times are seconds."""

    speaker: str  # A, B, … in order of appearance, or the name of a known speaker
    start: float
    end: float
    text: str
    words: tuple[Word, ...]

    def shifted(self, seconds: float) -> "SpeakerUtterance":
        start, end = self.start + seconds, self.end + seconds
        return replace(self, start=start, end=end, words=shifted(self.words, seconds))


def voice_of(pcm: Pcm, vad: VADEngine, encoder: SpeakerEncoder) -> Embedding | None:
    """Computes the voice of float32 [n] at 16 kHz; None unless one person speaks. Blocking."""
    segment = SpeechSegment(0, len(pcm))
    spans = spans_of(vad.probabilities(pcm), vad.capabilities.frame_samples, segment)
    voices = embedded(pcm, spans, encoder)
    speakers = joined((), voices, MIN_NEW_S)
    return mean_embedding(voices.embeddings) if len(speakers) == 1 else None


def embedded(pcm: Pcm, spans: Spans, encoder: SpeakerEncoder) -> WindowEmbeddings:
    """Embed windows of the spans of float32 [n] at 16 kHz. Blocking."""
    windows = voice_windows(spans)
    places = np.array(windows).reshape(-1, 2) / VAD_SAMPLE_RATE
    return WindowEmbeddings(places, encoder.embed_pieces(pcm, windows))


def has_several_speakers(speech: Pcm, encoder: SpeakerEncoder) -> bool:
    """Whether the speech, float32 [n] at 16 kHz without pauses, is of several speakers with
    MIN_SPEAKER_S each. Blocking, about 0.3 s for 30 s."""
    voices = embedded(speech, ((0, len(speech)),), encoder)
    means = np.stack([group.mean for group in joined((), voices, MIN_SPEAKER_S)])
    nearest = np.argmax(voices.embeddings @ means.T, axis=1)

    def surest(group: int, other: int) -> Embedding:
        mine = voices.embeddings[nearest == group]
        order = np.argsort(mine @ (means[other] - means[group]))
        return mean_embedding(mine[order[: math.ceil(len(mine) * SUREST_SHARE)]])

    pairs = combinations(np.unique(nearest), 2)
    return any(float(surest(a, b) @ surest(b, a)) < OTHER_SIMILARITY for a, b in pairs)


def voice_windows(spans: Spans) -> Spans:
    """Windows of a segment's spans to embed, in samples from its start."""
    return tuple(window for start, end in spans for window in _windows(start, end))


def _windows(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields equal windows at equal distances, and one up to the end; a short span is a window."""
    size = min(end - start, round(WINDOW_S * VAD_SAMPLE_RATE))
    if size >= MIN_WINDOW_S * VAD_SAMPLE_RATE:
        hop = round(HOP_S * VAD_SAMPLE_RATE)
        yield from ((at, at + size) for at in range(start, end - size, hop))
        yield end - size, end


def cluster_speakers(
    segments: Sequence[Segment], voices: WindowEmbeddings, separator: str, speakers: "SpeakerLabels"
) -> tuple[SpeakerUtterance, ...]:
    """Returns the utterances of a recording or its next part. Without embeddings, all are of one
    speaker."""
    # A segment stands for itself where the engine gave no words.
    units = [unit for segment in segments for unit in units_of(segment.words) or [segment]]
    return utterances_of(speakers.label(units, voices), units, separator)


def utterances_of(
    speakers: Sequence[str], units: Sequence[Segment], separator: str
) -> tuple[SpeakerUtterance, ...]:
    """Groups units by their speakers' labels into utterances."""
    utterances = []
    for speaker, group in groupby(zip(speakers, units, strict=True), key=lambda pair: pair[0]):
        spoken = [unit for _, unit in group]
        utterances.append(
            SpeakerUtterance(
                speaker=speaker,
                start=spoken[0].start,
                end=spoken[-1].end,
                text=separator.join(unit.text for unit in spoken),
                words=tuple(word for unit in spoken for word in unit.words),
            )
        )
    return tuple(utterances)


def turns_of(speaker: str, words: Sequence[Word], separator: str) -> Iterator[SpeakerUtterance]:
    """Splits the speech of one speaker into turns at pauses of TURN_PAUSE_S."""
    pauses = (after.start - word.end > TURN_PAUSE_S for word, after in pairwise(words))
    numbers = [str(number) for number in accumulate(pauses, initial=0)][: len(words)]
    turns = utterances_of(numbers, units_of(words), separator)
    return (replace(turn, speaker=speaker) for turn in turns)


def speaker_letters() -> Iterator[str]:
    """Yields A to Z, then AA, AB and so on."""
    return map("".join, chain.from_iterable(product(ascii_uppercase, repeat=n) for n in count(1)))


def units_of(words: Sequence[Word]) -> list[Segment]:
    return [Segment(word.word, word.start, word.end, words=(word,)) for word in words]


class SpeakerLabels:
    """Labels of the speakers of a recording or a session, assigned part by part."""

    def __init__(
        self,
        known: Sequence[SpeakerVoice] = (),
        least_s: float = MIN_SPEAKER_S,
        heard: Sequence[SpeakerVoice] = (),
    ) -> None:
        """`known` speakers have their own labels, and those `heard` before keep theirs. A new
        speaker has at least `least_s` of speech."""
        self._known = known
        self._least_s = least_s
        self.heard = list(heard)
        self._names = {speaker.label for speaker in known}
        taken = self._names | {speaker.label for speaker in heard}
        letters = (label for label in speaker_letters() if label not in taken)
        self._first = next(letters)
        self._letters = chain((self._first,), letters)

    def label(self, units: Sequence[Segment], voices: WindowEmbeddings) -> list[str]:
        """Labels each unit, for good; blocking. Speech too short for windows belongs to the last
        speaker."""
        if not units or not len(voices.windows):
            return [self.heard[-1].label if self.heard else self._first] * len(units)
        before = len(self.heard)
        groups = joined(self.heard, voices, self._least_s)
        means = np.stack([group.mean for group in groups])
        chosen = _choose(units, voices, means)
        nearest = np.argmax(voices.embeddings @ means.T, axis=1)
        for number in np.unique(nearest):
            part = _part(voices, nearest == number)
            if number < before:
                self.heard[number].add(part)
            else:
                groups[number] = part
        self.heard += groups[before:]
        speakers = [self.heard[number] for number in chosen]
        for speaker in speakers:
            if speaker.label not in self._names:
                name = speaker.name_of(self._known)
                speaker.label = name or speaker.label or next(self._letters)
        labelled = (speaker for speaker in self.heard if speaker.label)
        # The speaker who spoke last comes last.
        self.heard = sorted(labelled, key=lambda speaker: speaker is speakers[-1])
        return [speaker.label for speaker in speakers]


def joined(
    speakers: Sequence[SpeakerVoice], voices: WindowEmbeddings, least_s: float
) -> list[SpeakerVoice]:
    """Joins groups of similar windows to the speakers, and adds new speakers. A new speaker has at
    least `least_s` of speech, except the first. Groups that are alike count together, because the
    windows of a short turn often form several small groups."""
    voices_so_far = [replace(speaker) for speaker in speakers]
    groups = np.zeros(len(voices.windows), np.int64)
    if len(groups) > 1:
        tree = linkage(voices.embeddings.astype(np.float64), "average", metric="cosine")
        groups = fcluster(tree, 1 - MIN_SIMILARITY, "distance").astype(np.int64)
    parts = [_part(voices, groups == group) for group in np.unique(groups)]
    for part in sorted(parts, key=lambda part: -part.seconds):
        nearest = max(voices_so_far, key=part.likeness, default=None)
        if nearest is not None and part.likeness(nearest) >= 0:
            nearest.add(part)
        else:
            voices_so_far.append(part)
    kept = max(1, len(speakers))
    long_enough = [voice for voice in voices_so_far[kept:] if voice.seconds >= least_s]
    return voices_so_far[:kept] + long_enough


def _part(voices: WindowEmbeddings, mine: NDArray[np.bool_]) -> SpeakerVoice:
    """Computes the voice of some windows, which are in order of their starts."""
    ends = np.maximum.accumulate(voices.windows[mine, 1])
    starts = np.maximum(voices.windows[mine, 0], np.concatenate([[-np.inf], ends[:-1]]))
    seconds = float(np.maximum(voices.windows[mine, 1] - starts, 0).sum())
    return SpeakerVoice(voices.embeddings[mine].mean(axis=0).astype(np.float64) * seconds, seconds)


def _choose(units: Sequence[Segment], voices: WindowEmbeddings, means: Scores) -> list[int]:
    """Chooses the speakers of units with the highest similarity, less the costs of changes."""
    alike = voices.embeddings @ means.T
    middles = voices.windows.mean(axis=1)
    reaches = (voices.windows[:, 1] - voices.windows[:, 0]) / 2 + LEAST_S
    best = np.zeros(len(means))
    backward: list[NDArray[np.int64]] = []
    for number, unit in enumerate(units):
        away = np.abs(middles - (unit.start + unit.end) / 2) / reaches
        # The middle of a window counts most; a unit outside all windows takes the nearest.
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
