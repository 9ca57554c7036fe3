"""Measures how fast the language model writes the answers of a session."""

AT_ONCE_S = 0.003  # text that comes sooner was already there, and says nothing about the pace
KEPT = 0.9  # weight of the earlier measurements at each delta, which is about a token
# The pace until it is measured: that of a model of 13 tokens a second.
FIRST_GUESS = 60.0
GUESS_S = 0.1


class WritingPace:
    """Measures letters per second, by `spoken_length`, over about the last ten deltas of a session.

    The pace depends on the load: one session on 2 cores gets 80 to 90 letters a second of the
    larger chat model, each of four sessions 20 to 34."""

    def __init__(self) -> None:
        self._letters = FIRST_GUESS * GUESS_S
        self._seconds = GUESS_S
        self._has_waited = False  # whether a delta of this answer, after its first, was waited for

    @property
    def letters_per_s(self) -> float:
        return self._letters / self._seconds

    def begin(self) -> None:
        """Begins an answer. Its first delta is not counted, since it also waited for the prompt.
        The deltas of a draft, which were written before their turn, do not count either."""
        self._has_waited = False

    def count(self, letters: int, waited_s: float) -> None:
        """Counts a delta after the first."""
        self._has_waited = self._has_waited or waited_s > AT_ONCE_S
        if self._has_waited:
            self._letters = KEPT * self._letters + letters
            self._seconds = KEPT * self._seconds + waited_s
