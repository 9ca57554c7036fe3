"""Speaker diarization: embeddings of short windows, speaker clustering, a speaker for each word.

The number of speakers is not given: agglomerative clustering by average cosine distance joins
windows while the groups are alike. The words then take the cheapest path through the speakers
(Viterbi), where a change of speaker costs more within speech than at a pause.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby, islice, pairwise, product
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from models.speaker.base import Embedding, Embeddings
from models.stt.base import Segment, Word
from models.vad.base import VAD_SAMPLE_RATE
from pipelines.audio.segments import Spans

WINDOW_S = 1.6  # the length that the encoder was trained on
HOP_S = 0.4
MIN_WINDOW_S = 0.4  # an embedding of less is useless
MIN_SIMILARITY = 0.7  # of the windows of one speaker, on average
MIN_DISTANCE = 0.2  # of the mean embeddings of two speakers with much speech
DOUBT = 0.1  # added to it, divided by the seconds of speech of each
MIN_SPEAKER_S = 2.0  # of speech; a group with less joins another speaker
CHANGE_COST = 0.12  # of another speaker within speech, in seconds of full dissimilarity
PAUSE_CHANGE_COST = 0.02  # the same after a pause
FULL_PAUSE_S = 0.3  # a longer pause makes a change no likelier
KNOWN_SIMILARITY = 0.75  # of a speaker with much speech to a known one, less DOUBT as above
GRID_S = 0.1
TURN_PAUSE_S = 0.5  # of a speaker with a channel of their own
ROUNDS = 3  # of assigning words and averaging embeddings in turn

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WindowEmbeddings:
    """The speaker embeddings of a file."""

    windows: NDArray[np.float64]  # [k, 2], where each begins and ends, in seconds
    embeddings: Embeddings  # [k, 256]


@dataclass(frozen=True, slots=True)
class KnownSpeaker:
    """A speaker whose voice was recorded before."""

    name: str  # the label
    embedding: Embedding = field(repr=False)


@dataclass(frozen=True, slots=True)
class SpeakerUtterance:
    """Consecutive speech of one speaker. Times are seconds."""

    speaker: str  # A, B, … in order of appearance, or the name of a known speaker
    start: float
    end: float
    text: str
    words: tuple[Word, ...]


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
    known: Sequence[KnownSpeaker] = (),
) -> tuple[SpeakerUtterance, ...]:
    """The utterances of a file, in order. Without embeddings there is one speaker."""
    units = [unit for segment in segments for unit in _units(segment)]
    speakers, labels = _speakers_of(units, voices)
    letters = speaker_letters(known)
    names: dict[int, str] = {}
    for speaker in dict.fromkeys(speakers):  # in order of appearance
        mine = labels == speaker
        total = voices.embeddings[mine].sum(axis=0)
        name = recognised(total, covered_s(voices.windows[mine]), known)
        names[speaker] = name or next(letters)
    return utterances_of([names[speaker] for speaker in speakers], units, separator)


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
    ends = [
        at
        for at, (word, after) in enumerate(pairwise(words), 1)
        if after.start - word.end > TURN_PAUSE_S
    ]
    for first, last in pairwise([0, *ends, len(words)] if words else []):
        said = tuple(words[first:last])
        text = separator.join(word.word for word in said)
        yield SpeakerUtterance(speaker, said[0].start, said[-1].end, text, said)


def recognised(total: Scores, seconds: float, known: Sequence[KnownSpeaker]) -> str | None:
    """The name of the known speaker with that voice: `total` is the sum of its embeddings."""
    if not known or not seconds:
        return None
    best = max(known, key=lambda one: float(one.embedding @ total))
    similarity = float(best.embedding @ total) / float(np.linalg.norm(total))
    return best.name if similarity >= KNOWN_SIMILARITY - DOUBT / seconds else None


def speaker_letters(known: Sequence[KnownSpeaker] = ()) -> Iterator[str]:
    """The labels of speakers who are not known, in order."""
    names = {one.name for one in known}
    return (name for name in map(speaker_name, count()) if name not in names)


def speaker_name(number: int) -> str:
    """A to Z, then AA, AB and so on."""
    names = (letters for size in count(1) for letters in product(ascii_uppercase, repeat=size))
    return "".join(next(islice(names, number, None)))


def _units(segment: Segment) -> Iterator[Segment]:
    """The words of a segment; the segment itself where the engine gave none."""
    if not segment.words:
        yield segment
    for word in segment.words:
        yield Segment(word.word, word.start, word.end, 0.0, 0.0, (word,))


def _speakers_of(
    units: Sequence[Segment], voices: WindowEmbeddings
) -> tuple[list[int], NDArray[np.int64]]:
    """The number of a speaker for each unit, and for each window."""
    chosen, labels = [0] * len(units), np.zeros(len(voices.windows), np.int64)
    if not units or not len(voices.windows):
        return chosen, labels
    labels = groups_of(voices)
    for _ in range(ROUNDS):
        means = _means(voices.embeddings, labels)
        if len(means) == 1:
            return [0] * len(units), np.zeros_like(labels)
        chosen, labels = assigned(units, voices, means)
    return chosen, labels


def assigned(
    units: Sequence[Segment], voices: WindowEmbeddings, means: Scores
) -> tuple[list[int], NDArray[np.int64]]:
    """Which of the speakers, with these mean embeddings, says each unit, and has each window."""
    scores, heard = _timeline(voices, means)
    chosen = _choose(units, scores, heard)
    return chosen, _majority(voices, units, chosen, scores)


def alike(embeddings: Embeddings) -> NDArray[np.int64]:
    """A group for each embedding, by their similarity alone."""
    if len(embeddings) == 1:
        return np.zeros(1, np.int64)
    tree = linkage(embeddings.astype(np.float64), "average", metric="cosine")
    return fcluster(tree, 1 - MIN_SIMILARITY, "distance").astype(np.int64)


def groups_of(voices: WindowEmbeddings) -> NDArray[np.int64]:
    """A group for each window, numbered from 0, one for each speaker."""
    labels = _without_small(voices, alike(voices.embeddings))
    while True:
        labels = np.unique(labels, return_inverse=True)[1]
        means = _means(voices.embeddings, labels)
        if len(means) == 1:
            return labels
        # The mean embedding of little speech is dissimilar to all others by chance.
        doubt = DOUBT / _seconds_of(voices, labels)
        apart = 1 - means @ means.T - doubt[:, None] - doubt + 2 * np.eye(len(means))
        one, other = np.unravel_index(int(np.argmin(apart)), apart.shape)
        if apart[one, other] > MIN_DISTANCE:
            return labels
        labels[labels == one] = other


def _without_small(voices: WindowEmbeddings, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Windows of groups with little speech go to the nearest of the other groups."""
    names = np.unique(labels)
    seconds = _seconds_of(voices, labels)
    large = seconds >= min(MIN_SPEAKER_S, seconds.max())
    means = _means(voices.embeddings, labels)[large]
    nearest = names[large][np.argmax(voices.embeddings @ means.T, axis=1)]
    return np.where(np.isin(labels, names[large]), labels, nearest)


def _seconds_of(voices: WindowEmbeddings, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The speech of each group, in the order of their labels."""
    return np.array([covered_s(voices.windows[labels == label]) for label in np.unique(labels)])


def covered_s(windows: NDArray[np.float64]) -> float:
    """Seconds that windows cover, in order of their starts."""
    ends = np.maximum.accumulate(windows[:, 1])
    before = np.concatenate([[-np.inf], ends[:-1]])
    return float(np.maximum(windows[:, 1] - np.maximum(windows[:, 0], before), 0).sum())


def _means(embeddings: Embeddings, labels: NDArray[np.int64]) -> Scores:
    """The mean embedding of each group, [groups, 256], in the order of their labels."""
    means = np.stack([embeddings[labels == label].mean(axis=0) for label in np.unique(labels)])
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), np.float64)


def _timeline(voices: WindowEmbeddings, means: Scores) -> tuple[Scores, NDArray[np.bool_]]:
    """The similarity of each step of GRID_S to each speaker, [steps, speakers].

    Also which steps lie in a window; the others have none.
    """
    steps = int(voices.windows.max() / GRID_S) + 1
    alike = voices.embeddings.astype(np.float64) @ means.T
    total = np.zeros((steps, len(means)))
    weights = np.zeros(steps)
    for (start, end), row in zip(voices.windows, alike, strict=True):
        first, last = int(start / GRID_S), max(int(end / GRID_S), int(start / GRID_S) + 1)
        middles = (np.arange(first, last) + 0.5) * GRID_S
        # The middle of a window counts most.
        weight = 1.1 - np.abs(middles - (start + end) / 2) / ((end - start) / 2 + GRID_S)
        total[first:last] += weight[:, None] * row
        weights[first:last] += weight
    heard = weights > 0
    total[heard] /= weights[heard, None]
    return total, heard


def _choose(units: Sequence[Segment], scores: Scores, heard: NDArray[np.bool_]) -> list[int]:
    """The speakers of the units with the highest similarity, less the costs of changes."""
    pauses = np.concatenate([[0], np.cumsum(~heard)]) * GRID_S
    places = np.flatnonzero(heard)
    best = np.zeros(scores.shape[1])
    backward: list[NDArray[np.int64]] = []
    middle = 0
    for number, unit in enumerate(units):
        steps = _steps(unit, len(heard))
        said = steps[heard[steps]]
        if not len(said):  # its times are inexact: the nearest speech
            said = places[[int(np.abs(places - steps[0]).argmin())]]
        before, middle = middle, int(said[len(said) // 2])
        from_best = np.arange(len(best))
        if number:
            pause = max(pauses[middle] - pauses[before], unit.start - units[number - 1].end, 0.0)
            share = min(pause / FULL_PAUSE_S, 1.0)
            cost = CHANGE_COST + share * (PAUSE_CHANGE_COST - CHANGE_COST)
            change = best.max() - cost
            from_best = np.where(best >= change, from_best, int(best.argmax()))
            best = np.maximum(best, change)
        backward.append(from_best)
        best = best + scores[said].mean(axis=0) * max(unit.end - unit.start, GRID_S)
    chosen = [int(best.argmax())]
    for from_best in reversed(backward[1:]):
        chosen.append(int(from_best[chosen[-1]]))
    return chosen[::-1]


def _majority(
    voices: WindowEmbeddings, units: Sequence[Segment], chosen: Sequence[int], scores: Scores
) -> NDArray[np.int64]:
    """The speaker of most words in each window; without words the most similar one."""
    held = np.zeros_like(scores)
    for unit, speaker in zip(units, chosen, strict=True):
        held[_steps(unit, len(scores)), speaker] += 1
    labels = np.empty(len(voices.windows), np.int64)
    for number, (start, end) in enumerate(voices.windows):
        steps = slice(int(start / GRID_S), int(end / GRID_S) + 1)
        words = held[steps].sum(axis=0)
        labels[number] = (words if words.any() else scores[steps].sum(axis=0)).argmax()
    return labels


def _steps(unit: Segment, count: int) -> NDArray[np.int64]:
    """The steps that a unit covers, at least one."""
    first = min(int(unit.start / GRID_S), count - 1)
    return np.arange(first, max(first + 1, min(round(unit.end / GRID_S), count)))
