"""The contract of every grammar engine of the registry."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from models.grammar_check.base import GrammarEngine
from models.registry import GRAMMAR_CHECK
from tests.models.configured import configurations, configured

TEXT = "😀 She go too school with an friend , yesterday."


@pytest.fixture(scope="module", params=configurations(GRAMMAR_CHECK))
def engine(request: pytest.FixtureRequest) -> GrammarEngine:
    return configured(GRAMMAR_CHECK, request.param)


def test_findings_lie_in_the_text_and_have_a_rule_and_replacements(engine: GrammarEngine) -> None:
    findings = engine.check(TEXT)
    assert "go" in [TEXT[finding.start : finding.end] for finding in findings]
    assert all(0 <= finding.start < finding.end <= len(TEXT) for finding in findings)
    assert all(finding.replacements and finding.rule for finding in findings)


def test_clean_and_empty_texts_have_no_findings(engine: GrammarEngine) -> None:
    assert engine.check("") == engine.check("She goes to school with a friend.") == []


def test_threads_can_share_an_engine(engine: GrammarEngine) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(engine.check, [TEXT] * 8))
    assert all(answer == answers[0] for answer in answers)
