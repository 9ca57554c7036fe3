"""The plan of a correction: passages, their languages, and those that a language model corrects."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from configs.schema.correction import CorrectionConfig, Purpose
from models.base import ModelInfo
from pipelines.correction.dictionary import Dictionary
from pipelines.correction.passages import Passage, cut, sentences
from pipelines.correction.protection import Protected
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rules import CorrectionRules
from pipelines.correction.warnings import Option, Shortfall
from pipelines.errors import InvalidRequest

_PURPOSES: dict[Option, Purpose] = {
    "tone": "tone",
    "language": "languages",
    "appContext": "context",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A passage, and what a language model is asked for; None where rules alone correct it."""

    passage: Passage
    asked: tuple[Option, ...] | None = None


@dataclass(eq=False, repr=False)
class Plan:
    """All parts of a text, in order; `shortfall` has what no model is asked for."""

    request: CorrectionRequest  # as the language model gets it
    parts: list[Part]
    dictionary: Dictionary
    protected: list[Protected]
    shortfall: Shortfall

    @property
    def asks(self) -> bool:
        """Whether a language model is asked for any part."""
        return any(part.asked is not None for part in self.parts)

    def asked(self) -> list[tuple[str, str]]:
        """The sentences that it is asked for, and their languages."""
        text = self.request.text
        return [
            (text[passage.start : passage.end], passage.language or "en")
            for passage in (part.passage for part in self.parts if part.asked is not None)
        ]


@dataclass(frozen=True)
class Planner:
    """Plans one request; `model` corrects, or `reason` says why none does. Blocking."""

    rules: CorrectionRules
    request: CorrectionRequest
    config: CorrectionConfig
    model: ModelInfo | None
    reason: str
    shortfall: Shortfall = field(default_factory=Shortfall)

    def plan(self) -> Plan:
        """Raises InvalidRequest for a text of too many paragraphs."""
        text = self.request.text
        passages = list(cut(text, self.config.piece_characters))
        most = self.config.paragraphs
        if (paragraphs := sum(passage.is_prose for passage in passages)) > most:
            raise InvalidRequest(
                f"text: has {paragraphs} paragraphs, and at most {most} are allowed: send it in"
                " parts"
            )
        passages = [self._in_its_language(passage) for passage in passages]
        is_english = any(passage.is_prose and passage.language == "en" for passage in passages)
        parts = [part for passage in passages for part in self._parts(passage, is_english)]
        request = self.request
        if not any("tone" in (part.asked or ()) for part in parts):
            request = replace(request, style=replace(request.style, tone=None))
        dictionary = Dictionary(request.dictionary)
        return Plan(request, parts, dictionary, dictionary.protected(text), self.shortfall)

    def _in_its_language(self, passage: Passage) -> Passage:
        if not passage.is_prose:
            return passage
        text = self.request.text[passage.start : passage.end]
        return replace(passage, language=self.rules.language(text))

    def _parts(self, passage: Passage, is_english: bool) -> Iterator[Part]:
        """`is_english`: another passage is, so that a name alone in a line is, too."""
        if not passage.is_prose:
            yield Part(passage)
            return
        asked = self._asked(passage.language or ("en" if is_english else None))
        if asked is None:
            yield Part(passage)
            return
        for sentence in sentences(self.request.text, passage):
            yield Part(sentence, asked if sentence.is_prose else None)

    def _asked(self, language: str | None) -> tuple[Option, ...] | None:
        """What the model is asked for in a text of that language; notes what it is not."""
        wanted: dict[Option, bool] = {
            "tone": self.request.style.tone is not None,
            "language": language != "en",
            "appContext": self.request.app_context is not None,
        }
        options = [option for option, is_wanted in wanted.items() if is_wanted]
        model = self.model
        if model is None:
            self.shortfall.skip(options, self.reason)
            return None
        if language is None:
            self.shortfall.skip(options, "its language was not recognised")
            return None
        if model.languages and language not in model.languages:
            self.shortfall.skip(options, f"{model.id} does not support its language ({language})")
            return None
        purposes = self.config.models.get(model.id, (*_PURPOSES.values(), "grammar"))
        asked = tuple(option for option in options if _PURPOSES[option] in purposes)
        is_asked = bool(asked) or (language == "en" and "grammar" in purposes)
        if language != "en" and "language" not in asked:
            asked, is_asked = (), False
        missing = [option for option in options if option not in asked]
        self.shortfall.skip(missing, f"{model.id} does it too badly to be asked")
        return asked if is_asked else None
