"""The selection of the candidate that becomes the voice."""

from dataclasses import replace

import pytest

from pipelines.voices.fitting.selection import FILTERS, STYLES, SelectionResult, candidates_of
from tests.pipelines.voices.fitting.world import fit, outcome_of, prior

FLOOR = 3.1
GOOD = SelectionResult(
    similarity=0.88, held_out=0.86, error_rate=0.02, quality=3.2, spectrum=(), pitches=()
)
STOCK = replace(GOOD, similarity=0.6)


@pytest.mark.parametrize(
    ("worse", "stock"),
    [
        (replace(GOOD, similarity=0.9, quality=2.8), STOCK),
        (replace(GOOD, similarity=0.9, quality=2.8), replace(STOCK, quality=1.8)),
        (replace(GOOD, similarity=0.9, error_rate=0.1), STOCK),
        (replace(GOOD, similarity=0.87), STOCK),
    ],
)
def test_similarity_does_not_outweigh_poor_quality_or_word_errors(
    worse: SelectionResult, stock: SelectionResult
) -> None:
    assert GOOD.score(stock, FLOOR) > worse.score(stock, FLOOR)


def test_quality_and_word_errors_like_a_stock_voice_have_no_penalty() -> None:
    assert GOOD.score(STOCK, FLOOR) == GOOD.similarity
    assert replace(GOOD, error_rate=0.03).score(STOCK, FLOOR) == pytest.approx(GOOD.similarity)


def test_the_score_ignores_word_errors_in_a_language_unknown_to_the_recogniser() -> None:
    assert replace(GOOD, error_rate=None).score(STOCK, FLOOR) == GOOD.similarity


def test_candidates_are_the_end_of_the_search_and_milder_versions_of_it() -> None:
    one = fit()
    one.observe([outcome_of(trial) for trial in one.next_trials()])
    found = candidates_of(prior().space, one._search.state)
    assert len({candidate.name for candidate in found}) == len(STYLES) * len(FILTERS)
    first, last = found[0], found[-1]
    spread = [max(candidate.bands) - min(candidate.bands) for candidate in (first, last)]
    assert spread[1] < spread[0]
