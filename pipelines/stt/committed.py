"""Committed text: the beginning of an utterance's text that no later transcript takes back.

Words are committed when two interims in a row agree on them: LocalAgreement-2 of Macháček, Dabre
and Bojar, "Turning Whisper into Real-Time Transcription System" (2023). What later transcripts have
in their place, by an alignment of least edit distance, is dropped."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from rapidfuzz.distance import Levenshtein

from pipelines.stt.events import LiveTranscript
from pipelines.stt.formatting import separator_of

HELD_WORDS = 1  # last words of an interim, which may be cut off

_NO_WORD = re.compile(r"[\W_]+")


class CommittedText:
    def __init__(self) -> None:
        self._separator: str | None = None  # set by the first transcript
        self._count = 0  # how many of `_last` are committed
        self._last: list[str] = []  # words of the last transcript

    def revise(self, transcript: LiveTranscript) -> LiveTranscript:
        """Makes the next transcript begin with the committed text, and may commit more."""
        if self._separator is None:
            self._separator = separator_of(transcript.language)
        text = transcript.text
        spoken = list(filter(None, text.split(self._separator) if self._separator else text))
        kept = self._last[: self._count]
        at = _matched_words(kept, spoken)
        words = [*kept, *spoken[at:]]
        pairs = zip(words, self._last, strict=False)
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._count = max(self._count, min(agreed, len(words) - HELD_WORDS))
        self._last = words
        committed = words if transcript.final else words[: self._count]
        timed = transcript.words
        if kept != spoken[:at] and at and len(timed) == len(spoken):
            places = (timed[at * index // len(kept)] for index in range(len(kept)))
            changed = (replace(place, word=word) for place, word in zip(places, kept, strict=True))
            timed = (*changed, *timed[at:])
        join = self._separator.join
        return replace(transcript, text=join(words), words=timed, committed=join(committed))


def _matched_words(kept: Sequence[str], spoken: Sequence[str]) -> int:
    """Counts the words at the start of `spoken` that correspond to the committed words `kept`."""
    if list(spoken[: len(kept)]) == kept:
        return len(kept)
    before, now = (
        [_NO_WORD.sub("", word).casefold() for word in words] for words in (kept, spoken)
    )
    distances = [Levenshtein.distance(before, now[:at]) for at in range(len(now) + 1)]
    return min(range(len(distances)), key=lambda at: (distances[at], abs(at - len(kept))))
