"""Which passages of a text a language model corrects, for which wishes, and what is undone."""

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
    "languages": "text: what is not English was not corrected",
    "context": "appContext: the wording was not adapted, only rules considered it",
}


@dataclass(frozen=True)
class Planner:
    """Plans one request; `model` may be asked, or `reason` says why there is none."""

    request: CorrectionRequest
    config: CorrectionConfig
    model: ModelInfo | None
    reason: str
    undone: Counter[tuple[Purpose, str]] = field(default_factory=Counter)
    """In how many passages or sentences a wish was not fulfilled, for which reason."""

    def passages(self, rules: CorrectionRules) -> list[Passage]:
        """All of the text; sentences where the model is asked. Blocking. Raises InvalidRequest."""
        text, most = self.request.text, self.config.paragraphs
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
        usual = "en" if "en" in languages else None  # of a name alone in a line
        planned: list[Passage] = []
        for passage, language in zip(passages, languages, strict=True):
            if passage.is_prose:
                asked = self._asked(language or usual)
                passage = replace(passage, language=language or usual, asked=asked)
            planned += [passage] if passage.asked is None else sentences(text, passage)
        return planned

    def _asked(self, language: str | None) -> tuple[Purpose, ...] | None:
        """What the model is asked for in a text of that language; None: nothing."""
        wanted: dict[Purpose, bool] = {
            "tone": self.request.style.tone is not None,
            "languages": language != "en",
            "context": self.request.app_context is not None,
        }
        wishes = [wish for wish, is_wanted in wanted.items() if is_wanted]
        model = self.model
        if model is None:
            reason = self.reason
        elif language is None:
            reason = "its language was not recognised"
        elif model.languages and language not in model.languages:
            reason = f"{model.id} does not support its language ({language})"
        else:
            purposes = self.config.models.get(model.id, ("grammar", *wanted))
            asked = tuple(wish for wish in wishes if wish in purposes)
            reason = f"{model.id} does it too badly to be asked"
            if "languages" in asked or (language == "en" and (asked or "grammar" in purposes)):
                self.undone.update((wish, reason) for wish in wishes if wish not in asked)
                return asked
        self.undone.update((wish, reason) for wish in wishes)
        return None

    def warnings(self) -> list[tuple[Purpose, str]]:
        """Each wish that was not fulfilled, with a message for each reason."""
        return [
            (wish, f"{_UNDONE[wish]}{f' ({count} times)' * (count > 1)}: {reason}")
            for (wish, reason), count in self.undone.items()
        ]
