"""Online diarization: speaker labels of a live session, told with each final and kept.

Windows of speech are embedded while it is heard. At a final, those of the utterance are clustered
as in a file, and each group joins the speaker of the session that it is like, or is a new one; the
words then take the cheapest path through all speakers. Speakers who turn out to be one, as more of
them is heard, go on under the label that is the older.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.stt.base import Segment
from pipelines.stt.diarization import (
    MIN_DISTANCE,
    KnownSpeaker,
    Scores,
    WindowEmbeddings,
    alike,
    assigned,
    covered_s,
    recognised,
    speaker_letters,
)

# As DOUBT of files, where the groups are larger. Chosen on two speakers of LibriSpeech and voices
# of Kokoro, and reported on others: see benchmarks.stt.diarization.
LIVE_DOUBT = 0.15
MIN_NEW_S = 0.8  # of speech; less is told as the likeliest of the speakers so far


@dataclass(slots=True)
class _Speaker:
    """One of a session."""

    total: Scores  # the sum of the embeddings, each group's mean times its seconds
    seconds: float
    label: str = ""  # none was told yet
    is_known: bool = False

    @property
    def mean(self) -> Scores:
        return self.total / np.linalg.norm(self.total)

    def is_like(self, other: "_Speaker") -> bool:
        doubt = LIVE_DOUBT / self.seconds + LIVE_DOUBT / other.seconds
        return float(self.mean @ other.mean) >= 1 - MIN_DISTANCE - doubt

    def add(self, other: "_Speaker") -> None:
        self.total = self.total + other.total
        self.seconds += other.seconds
        if other.is_known or not self.label:
            self.label, self.is_known = other.label, other.is_known


class OnlineDiarization:
    """The speakers of one session."""

    def __init__(self, known: Sequence[KnownSpeaker] = ()) -> None:
        """`known` speakers are told by name, once enough of them was heard."""
        self._known = known
        self._letters = speaker_letters(known)
        self._speakers: list[_Speaker] = []
        self._last = next(speaker_letters(known))

    def label(self, units: Sequence[Segment], voices: WindowEmbeddings) -> list[str]:
        """The label of each unit of the next utterance; times are from its start.

        Without windows, as so little was said, it is that of the last one. Blocking: about 2 ms.
        """
        if not units or not len(voices.windows):
            return [self._last] * len(units)
        groups = alike(voices.embeddings)
        parts = [_part(voices, groups == group) for group in np.unique(groups)]
        count, speakers = len(self._speakers), [*self._speakers]
        for part in sorted(parts, key=lambda one: -one.seconds):
            if not any(part.is_like(one) for one in speakers):
                if part.seconds >= MIN_NEW_S or not speakers:
                    speakers.append(part)
        chosen, labels = assigned(units, voices, np.stack([one.mean for one in speakers]))
        for number, speaker in enumerate(speakers):
            if (mine := labels == number).any():
                heard = _part(voices, mine)
                if number < count:
                    speaker.add(heard)
                else:
                    speaker.total, speaker.seconds = heard.total, heard.seconds
        told = [speakers[number] for number in chosen]
        for speaker in told:
            if not speaker.is_known:
                name = recognised(speaker.total, speaker.seconds, self._known)
                speaker.label = name or speaker.label or next(self._letters)
                speaker.is_known = name is not None
        labelled = [speaker.label for speaker in told]
        self._last = labelled[-1]
        self._speakers = _merged([one for one in speakers if one.label])
        return labelled


def _part(voices: WindowEmbeddings, mine: NDArray[np.bool_]) -> _Speaker:
    """What some of the windows have of a speaker."""
    seconds = covered_s(voices.windows[mine])
    return _Speaker(voices.embeddings[mine].mean(axis=0).astype(np.float64) * seconds, seconds)


def _merged(speakers: list[_Speaker]) -> list[_Speaker]:
    """Without those who turned out to be an earlier one."""
    kept: list[_Speaker] = []
    for speaker in speakers:
        same = (
            one
            for one in kept
            if one.label == speaker.label
            or (one.is_like(speaker) and not (one.is_known and speaker.is_known))
        )
        if (earlier := next(same, None)) is None:
            kept.append(speaker)
        else:
            earlier.add(speaker)
    return kept
