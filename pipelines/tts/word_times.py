"""The times of the caller's words, from those that an engine gives for the normalised text."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from models.audio import WordTime
from pipelines.text.alignment import SourceWord


@dataclass(frozen=True, slots=True)
class ChunkWord:
    """A word of the caller and its seconds from the start of the engine's audio of the chunk."""

    source: SourceWord
    start_s: float
    end_s: float


class WordMatcher:
    """Matches the words of one text chunk; one written word may be spoken as several.

    A word without times of the engine is placed by its share of the letters.
    """

    def __init__(self, words: Sequence[SourceWord]) -> None:
        self._waiting = deque(words)
        self._spoken: list[WordTime] = []  # seconds from the start of the chunk
        self._placed_to = 0  # offset into the text of the chunk, and its time
        self._placed_s = 0.0

    def add_times(self, words: Sequence[WordTime], offset_s: float) -> None:
        """Adds the words of audio that starts at `offset_s`."""
        self._spoken += [
            WordTime(one.text_start, one.text_end, one.start_s + offset_s, one.end_s + offset_s)
            for one in words
        ]

    def matched(self) -> list[ChunkWord]:
        """Words whose times are now known, in order, each once."""
        known: list[ChunkWord] = []
        while self._waiting and self._spoken:
            if self._spoken[-1].text_end < self._waiting[0].spoken_end:
                break
            source = self._waiting.popleft()
            known.append(self._keep(self._match(source) or self._between(source)))
        return known

    def finish(self, start_s: float, end_s: float) -> list[ChunkWord]:
        """All other words of a chunk that sounds from `start_s` to `end_s`."""
        known: list[ChunkWord] = []
        end = max([self._placed_to, *(word.spoken_end for word in self._waiting)])
        begin, begin_s = self._placed_to, max(self._placed_s, start_s)
        rest_s = max(0.0, end_s - begin_s)
        per_character = rest_s / (end - begin) if end > begin else 0.0
        while self._waiting:
            source = self._waiting.popleft()
            found = self._match(source)
            if found is None:
                found = ChunkWord(
                    source,
                    begin_s + max(0, source.spoken_start - begin) * per_character,
                    begin_s + max(0, source.spoken_end - begin) * per_character,
                )
            known.append(self._keep(found))
        return known

    def _match(self, source: SourceWord) -> ChunkWord | None:
        """From where the first of its spoken words begins to where the last ends."""
        spoken = [
            one
            for one in self._spoken
            if one.text_start < source.spoken_end and one.text_end > source.spoken_start
        ]
        if not spoken:
            return None
        return ChunkWord(
            source,
            _time_at(spoken[0], max(source.spoken_start, spoken[0].text_start)),
            _time_at(spoken[-1], min(source.spoken_end, spoken[-1].text_end)),
        )

    def _between(self, source: SourceWord) -> ChunkWord:
        """A word that is not spoken, as where a later one already is: no time of its own."""
        return ChunkWord(source, self._placed_s, self._placed_s)

    def _keep(self, word: ChunkWord) -> ChunkWord:
        """Words never run backwards, whatever an engine says."""
        start_s = max(word.start_s, 0.0)
        word = ChunkWord(word.source, start_s, max(word.end_s, start_s))
        self._placed_to = max(self._placed_to, word.source.spoken_end)
        self._placed_s = max(self._placed_s, word.end_s)
        self._spoken = [one for one in self._spoken if one.text_end > word.source.spoken_end]
        return word


def _time_at(word: WordTime, position: int) -> float:
    share = (position - word.text_start) / max(1, word.text_end - word.text_start)
    return word.start_s + share * (word.end_s - word.start_s)
