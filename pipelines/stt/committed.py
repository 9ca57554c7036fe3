"""Committed text: the beginning of an utterance's text that no later transcript takes back.

Words are committed when two interims in a row agree on them: LocalAgreement-2 of Macháček, Dabre
and Bojar, "Turning Whisper into Real-Time Transcription System" (2023). What later transcripts say
in their place, by an alignment of least edit distance, is dropped.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from rapidfuzz.distance import Levenshtein

from pipelines.stt.events import LiveTranscript
from pipelines.stt.formatting import separator_of

HELD_WORDS = 1  # at the end of an interim, which may be cut off

_NO_WORD = re.compile(r"[\W_]+")


class CommittedText:
    """That of one utterance."""

    def __init__(self) -> None:
        self._separator: str | None = None  # of the first transcript
        self._count = 0  # of the last words, those that are committed
        self._last: list[str] = []

    def revise(self, heard: LiveTranscript) -> LiveTranscript:
        """The next transcript of the utterance: it begins with what is committed, and may commit
        more of its text; a final commits all."""
        if self._separator is None:
            self._separator = separator_of(heard.language)
        said = heard.text.split(self._separator) if self._separator else list(heard.text)
        said, kept = [word for word in said if word], self._last[: self._count]
        at = _place(kept, said)
        words = [*kept, *said[at:]]
        agreed = 0
        while agreed < min(len(words), len(self._last)) and words[agreed] == self._last[agreed]:
            agreed += 1
        self._count = max(self._count, min(agreed, len(words) - HELD_WORDS))
        self._last = words
        committed = words if heard.final else words[: self._count]
        timed = heard.words
        if kept != said[:at] and at and len(timed) == len(said):
            places = (timed[at * index // len(kept)] for index in range(len(kept)))
            changed = (replace(one, word=word) for one, word in zip(places, kept, strict=True))
            timed = (*changed, *timed[at:])
        join = self._separator.join
        return replace(heard, text=join(words), words=timed, committed=join(committed))


def _place(kept: Sequence[str], said: Sequence[str]) -> int:
    """How many of the words that were said are those that are committed, heard again."""
    if list(said[: len(kept)]) == kept:
        return len(kept)
    before, now = ([_NO_WORD.sub("", word).casefold() for word in one] for one in (kept, said))
    distances = [Levenshtein.distance(before, now[:at]) for at in range(len(now) + 1)]
    return min(range(len(distances)), key=lambda at: (distances[at], abs(at - len(kept))))
