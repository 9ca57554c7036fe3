"""Harper: an English grammar checker in Rust, inside this process, without a model. Measured on 2
cores: 133 MB, 2 to 5 s to load, 2 to 20 ms a sentence."""

from threading import Lock
from typing import Any

from harper import Dialect, Linter, SuggestionKind

from configs.schema.models.in_process import HarperConfig
from models.errors import EngineError
from models.grammar_check.base import Finding, GrammarEngine
from models.weights.store import WeightStore


class HarperEngine(GrammarEngine):
    """Harper's linter; it takes one call at a time, and releases the GIL during the call."""

    def __init__(self, config: HarperConfig, weights: WeightStore) -> None:
        self._lock = Lock()
        self._linter = Linter(Dialect[config.dialect.upper()])
        rules = self._linter.get_default_lint_config()
        if unknown := sorted(set(config.rules_off) - set(rules)):
            raise EngineError(f"Harper has no rules {unknown!r}")
        self._linter.set_lint_config({**rules, **dict.fromkeys(config.rules_off, False)})
        self._kinds_off = frozenset(config.kinds_off)

    def check(self, text: str) -> list[Finding]:
        with self._lock:
            # Not deduplicated: the caller chooses between overlapping findings.
            by_rule = self._linter.organized_lints(text, language="plaintext", dedup=False)
        findings = [
            Finding(
                start=lint.span.start,
                end=lint.span.end,
                replacements=replacements,
                rule=rule,
                is_spelling=rule == "SpellCheck",
            )
            for rule, lints in by_rule.items()
            for lint in lints
            if lint.lint_kind not in self._kinds_off and (replacements := _replacements(lint))
        ]
        return sorted(findings, key=lambda finding: (finding.start, finding.end, finding.rule))


def _replacements(lint: Any) -> tuple[str, ...]:
    replacements = []
    for suggestion in lint.suggestions:
        text = suggestion.replacement_text
        after = suggestion.kind == SuggestionKind.INSERT_AFTER
        replacements.append(lint.problem_text + text if after else text)
    return tuple(dict.fromkeys(replacements))
