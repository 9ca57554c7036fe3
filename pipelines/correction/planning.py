"""Plans which passages of a text a language model corrects, and for which purposes."""

from collections import Counter
from dataclasses import dataclass, field, replace

from configs.schema.correction import CorrectionConfig, Purpose
from models.base import ModelInfo
from pipelines.correction.passages import Passage, cut, sentences
from pipelines.correction.request import CorrectionRequest
from pipelines.correction.rules import CorrectionRules
from pipelines.errors import InvalidRequest

_UNDONE: dict[Purpose, str] = {
    "tone": "style.tone: the wording was not changed",
    "languages": "text: parts that are not English were not corrected",
    "context": "appContext: the wording was not adapted; only rules took it into account",
}


@dataclass(frozen=True)
class Planner:
    """Plan of one request. `reason` says why no language model is asked, if `model` is None."""

    request: CorrectionRequest
    config: CorrectionConfig
    model: ModelInfo | None
    reason: str
    undone: Counter[tuple[Purpose, str]] = field(default_factory=Counter)
    """Counts passages or sentences in which a purpose was not fulfilled, by reason."""

    def passages(self, rules: CorrectionRules) -> list[Passage]:
        """Cuts the text into passages or sentences; blocking. Raises InvalidRequest."""
        text = self.request.text
        most = self.config.paragraphs
        passages = list(cut(text, self.config.piece_characters))
        if (paragraphs := sum(passage.is_prose for passage in passages)) > most:
            raise InvalidRequest(
                f"text: has {paragraphs} paragraphs, and at most {most} are allowed: send it in"
                " parts"
            )
        languages = [
            rules.language(text[passage.start : passage.end]) if passage.is_prose else None
            for passage in passages
        ]
        usual = "en" if "en" in languages else None  # assumed for a name alone in a line
        planned: list[Passage] = []
        for passage, language in zip(passages, languages, strict=True):
            if passage.is_prose:
                asked = self._asked(language or usual)
                passage = replace(passage, language=language or usual, asked=asked)
            planned += [passage] if passage.asked is None else sentences(text, passage)
        return planned

    def _asked(self, language: str | None) -> tuple[Purpose, ...] | None:
        """Purposes for which the model is asked in a language; None if it is not asked."""
        wanted: dict[Purpose, bool] = {
            "tone": self.request.style.tone is not None,
            "languages": language != "en",
            "context": self.request.app_context is not None,
        }
        purposes = [purpose for purpose, is_wanted in wanted.items() if is_wanted]
        model = self.model
        if model is None:
            reason = self.reason
        elif language is None:
            reason = "its language was not recognised"
        elif model.languages and language not in model.languages:
            reason = f"{model.id} does not support its language ({language})"
        else:
            able = self.config.models.get(model.id, ("grammar", *wanted))
            asked = tuple(purpose for purpose in purposes if purpose in able)
            reason = f"{model.id} is not good enough at this"
            if "languages" in asked or (language == "en" and (asked or "grammar" in able)):
                self.undone.update(
                    (purpose, reason) for purpose in purposes if purpose not in asked
                )
                return asked
        self.undone.update((purpose, reason) for purpose in purposes)
        return None

    def warnings(self) -> list[tuple[Purpose, str]]:
        """Lists the purposes that were not fulfilled, with a message for each reason."""
        return [
            (purpose, f"{_UNDONE[purpose]}{f' ({count} times)' * (count > 1)}: {reason}")
            for (purpose, reason), count in self.undone.items()
        ]
