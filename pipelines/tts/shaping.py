"""From the sound that an engine gives for a piece to the sound that a listener gets."""

from collections.abc import Sequence

import numpy as np

from models.audio import AudioChunk, Pcm
from pipelines.audio import trimming
from pipelines.text.cleaning import TextChunk
from pipelines.tts.chunks import TimedWord
from pipelines.tts.word_times import PieceWord, WordMatcher


class PieceShaper:
    """Trims, fades and stretches one piece while it is made, and keeps the times of its words.

    Tempo and pitch need the whole piece: only then is all of it given at its end.
    """

    sample_rate = 0  # Hz, known with the first chunk

    def __init__(self, piece: TextChunk, *, tempo: float, pitch: float) -> None:
        self._tempo, self._pitch = tempo, pitch
        self._stretches = tempo != 1.0 or pitch != 1.0
        self._matcher = WordMatcher(piece.words)
        self._trimmer: trimming.SeamTrimmer | None = None
        self._unstretched: list[Pcm] = []
        self._words: list[PieceWord] = []  # matched, and not given yet
        self._heard = 0  # samples that the engine gave
        self._given = 0  # samples of the shaped piece
        self._ended = False

    def due_s(self, chunks: Sequence[AudioChunk], is_end: bool) -> float:
        """Seconds of audio that `shape` would work on: all of it when it stretches at the end."""
        seconds = sum(chunk.duration_s for chunk in chunks)
        if self._stretches and is_end and self._trimmer is not None:
            seconds += self._heard / self.sample_rate
        return seconds

    def shape(self, arrived: tuple[Sequence[AudioChunk], bool]) -> Pcm:
        """What can be heard after some more of the engine's chunks, and whether they end it.

        Blocking: well under 1 ms for 0.5 s, 20 ms a second when tempo or pitch change.
        """
        chunks, self._ended = arrived
        parts = [self._push(chunk) for chunk in chunks]
        if self._ended:
            parts.append(self._finish())
        shaped = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
        self._given += len(shaped)
        return shaped

    def words(self, begins_s: float) -> tuple[TimedWord, ...]:
        """Words that begin in what was given so far, each once; the piece begins at `begins_s`.

        Once the piece has ended, all others too.
        """
        if self._trimmer is None:
            return ()
        given_s = self._given / self.sample_rate
        trimmed_s = self._trimmer.trimmed / self.sample_rate
        begun: list[TimedWord] = []
        for word in self._words:
            start_s = max(0.0, word.start_s - trimmed_s) / self._tempo
            end_s = max(0.0, word.end_s - trimmed_s) / self._tempo
            if self._ended:  # an engine's own silence was taken off the end
                start_s, end_s = min(start_s, given_s), min(end_s, given_s)
            elif start_s >= given_s:
                break
            source = word.source
            begun.append(
                TimedWord(
                    source.word, begins_s + start_s, begins_s + end_s, source.start, source.end
                )
            )
        del self._words[: len(begun)]
        return tuple(begun)

    def _push(self, chunk: AudioChunk) -> Pcm:
        if self._trimmer is None:
            self.sample_rate = chunk.sample_rate
            self._trimmer = trimming.SeamTrimmer(chunk.sample_rate)
        self._matcher.hear(chunk.words, self._heard / chunk.sample_rate)
        self._heard += len(chunk.pcm)
        self._words += self._matcher.matched()
        pcm = self._trimmer.push(chunk.pcm)
        if not self._stretches:
            return pcm
        self._unstretched.append(pcm)
        return pcm[:0]

    def _finish(self) -> Pcm:
        if self._trimmer is None:
            return np.zeros(0, dtype=np.float32)
        pcm = self._trimmer.finish()
        starts = self._trimmer.trimmed
        ends = starts + self._trimmer.given
        self._words += self._matcher.finish(starts / self.sample_rate, ends / self.sample_rate)
        if not self._stretches:
            return pcm
        whole = np.concatenate([*self._unstretched, pcm])
        return trimming.stretch(whole, self.sample_rate, tempo=self._tempo, pitch=self._pitch)
