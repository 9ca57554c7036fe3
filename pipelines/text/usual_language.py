"""Usual languages of workspaces, which decide what a short text or utterance leaves open."""

from collections.abc import Sequence
from dataclasses import dataclass, field

FALLBACK_LANGUAGE = "en"  # where nothing shows the language
AGREEING = 3  # last certain texts or utterances that must agree
MOST_WORKSPACES = 10_000


@dataclass(slots=True)
class UsualLanguages:
    """Languages of the last texts and utterances of each workspace, oldest first."""

    _lately: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, workspace: int | str | None, among: Sequence[str] = ()) -> str | None:
        """Returns the language on which the last texts agree, limited to `among`, else the first of
        these.
        """
        lately = self._lately.get(str(workspace), ())
        usual = lately[0] if lately and lately == lately[:1] * AGREEING else None
        return among[0] if among and usual not in among else usual

    def note(self, workspace: int | str | None, language: str) -> None:
        """Adds the certain language of a text or an utterance."""
        lately = self._lately.pop(str(workspace), ())
        self._lately[str(workspace)] = (*lately, language)[-AGREEING:]
        if len(self._lately) > MOST_WORKSPACES:
            del self._lately[next(iter(self._lately))]
