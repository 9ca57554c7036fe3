"""Which candidate becomes the voice."""

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
def test_likeness_does_not_outweigh_a_voice_that_is_hard_to_listen_to(
    worse: SelectionResult, stock: SelectionResult
) -> None:
    assert GOOD.score(stock, FLOOR) > worse.score(stock, FLOOR)


def test_what_stock_voices_do_as_well_costs_nothing() -> None:
    assert GOOD.score(STOCK, FLOOR) == GOOD.similarity
    assert replace(GOOD, error_rate=0.03).score(STOCK, FLOOR) == pytest.approx(GOOD.similarity)


def test_a_language_that_the_recogniser_does_not_know_is_judged_without_it() -> None:
    assert replace(GOOD, error_rate=None).score(STOCK, FLOOR) == GOOD.similarity


def test_candidates_are_as_the_search_ended_and_milder() -> None:
    one = fit()
    one.observe([outcome_of(trial) for trial in one.next_trials()])
    found = candidates_of(prior().space, one._search.state)
    assert len({candidate.name for candidate in found}) == len(STYLES) * len(FILTERS)
    first, last = found[0], found[-1]
    spread = [max(candidate.bands) - min(candidate.bands) for candidate in (first, last)]
    assert spread[1] < spread[0]
