"""What a request asked for and its correction did not do."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Option = Literal["tone", "language", "appContext"]
"""What only a language model does: a tone, text that is not English, a context."""

_UNCHANGED: dict[Option, str] = {
    "tone": "style.tone: the wording was not changed",
    "language": "text: what is not English was not corrected",
    "appContext": "appContext: the wording was not adapted, only rules considered it",
}


@dataclass(frozen=True, slots=True)
class CorrectionWarning:
    kind: Option
    message: str


class Shortfall:
    """Collects what is not done, while a correction runs."""

    def __init__(self) -> None:
        self._skipped: dict[CorrectionWarning, None] = {}  # a set in order
        self._asked: Counter[Option] = Counter()
        self._kept: Counter[tuple[Option, str]] = Counter()

    def skip(self, options: Iterable[Option], reason: str) -> None:
        """Notes that no model is asked for these options."""
        for option in options:
            warning = CorrectionWarning(option, f"{_UNCHANGED[option]}: {reason}")
            self._skipped[warning] = None

    def count(self, options: Iterable[Option], guard: str | None) -> None:
        """Counts a sentence that a model was asked for; `guard` names why it was left as it was."""
        for option in options:
            self._asked[option] += 1
            if guard is not None:
                self._kept[option, guard] += 1

    def warnings(self) -> list[CorrectionWarning]:
        """One warning for each option and reason."""
        return [*self._skipped, *filter(None, map(self._partly, self._asked))]

    def _partly(self, option: Option) -> CorrectionWarning | None:
        guards = {guard: n for (of, guard), n in self._kept.items() if of == option}
        if not guards:
            return None
        return CorrectionWarning(
            option,
            f"{_UNCHANGED[option]} in {sum(guards.values())} of {self._asked[option]} sentences,"
            " where the language model's answer failed a check: "
            + ", ".join(f"{guard} ({n})" for guard, n in guards.items()),
        )
