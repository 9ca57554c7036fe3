"""How fast the language model writes the answers of a session."""

AT_ONCE_S = 0.003  # text that comes sooner was waiting already, and says nothing about the pace
KEPT = 0.9  # weight of what was measured before a delta, which is about a token
# Until something is measured: a model of 13 tokens a second.
FIRST_GUESS = 60.0
GUESS_S = 0.1


class WritingPace:
    """Characters per second, over the last ten deltas or so, which may be those of other answers.

    The load of the machine decides about it: one session on 2 cores gets 80 to 90 characters a
    second of the larger chat model, each of four sessions 20 to 34.
    """

    def __init__(self) -> None:
        self._characters = FIRST_GUESS * GUESS_S
        self._seconds = GUESS_S
        self._has_waited = False  # for a delta of this answer, after its first

    @property
    def characters_per_s(self) -> float:
        return self._characters / self._seconds

    def begin(self) -> None:
        """Begins an answer. Its first delta also waited for the prompt, and those of a draft were
        written before anybody waited: they do not count."""
        self._has_waited = False

    def count(self, characters: int, waited_s: float) -> None:
        """Counts a delta after the first."""
        self._has_waited = self._has_waited or waited_s > AT_ONCE_S
        if self._has_waited:
            self._characters = KEPT * self._characters + characters
            self._seconds = KEPT * self._seconds + waited_s
