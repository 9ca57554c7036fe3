"""CMA-ES over the style space, with predicted generations."""

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from configs.schema.voices import FitConfig
from pipelines.voices.fitting.checkpoint import read_checkpoint
from pipelines.voices.fitting.fit import FitProgress
from pipelines.voices.fitting.search import search as search_module
from pipelines.voices.fitting.search.cma_es import BOUND, Evolution
from pipelines.voices.fitting.search.search import MIN_POPULATION
from pipelines.voices.fitting.search.style_space import HALF, Vectors
from pipelines.voices.fitting.search.surrogate import Surrogate
from tests.pipelines.voices.fitting.test_fit import SHORT, run_fit
from tests.pipelines.voices.fitting.world import fit, outcome_of, prior

SPACE = prior().space


def evolution(population: int = 16, seed: int = 1) -> Evolution:
    return Evolution.begin(SPACE, np.zeros(SPACE.size), 0.3, population, seed)


def distance(points: Vectors) -> Vectors:
    """Squared distances from a point whose prosody does not matter."""
    return np.asarray(np.square(points[:, SPACE.halves[0]] - 1.0).sum(axis=1))


def test_the_halves_of_a_space_are_timbre_and_prosody() -> None:
    timbre, prosody = SPACE.halves
    assert timbre.stop == prosody.start and prosody.stop == SPACE.size
    assert not SPACE.directions[timbre, HALF:].any()
    assert not SPACE.directions[prosody, :HALF].any()


def test_an_evolution_converges_to_the_minimum_of_a_cost() -> None:
    one = evolution()
    one.evolve(distance, 120)
    assert distance(one.mean[None])[0] < 0.01


def test_timbre_and_prosody_evolve_independently() -> None:
    one, other = evolution(), evolution()
    for _ in range(5):
        points = one.ask()
        changed = points.copy()
        changed[:, SPACE.halves[1]] = -0.5 * points[::-1, SPACE.halves[1]]
        one.tell(points, distance(points))
        other.tell(changed, distance(points))
    left, right = one.state(), other.state()
    for name in left:
        assert np.array_equal(left[name], right[name]) == (name[0] == "0" or name == "1_g")
    assert left["0_c_1d"].shape == (SPACE.halves[0].stop * (SPACE.halves[0].stop + 1) / 2,)


def test_candidates_stay_within_bounds() -> None:
    one = Evolution.begin(SPACE, np.full(SPACE.size, 2 * BOUND), 20.0, 8, 1)
    assert np.abs(one.ask()).max() <= BOUND
    one.evolve(lambda points: -np.square(points).sum(axis=1), 10)
    assert np.abs(one.mean).max() <= BOUND


def test_an_evolution_resumed_twice_with_one_seed_asks_for_equal_points() -> None:
    one = evolution()
    one.evolve(distance, 7)
    first = Evolution.resume(SPACE, one.state(), 16, seed=5, min_step=0.0)
    second = Evolution.resume(SPACE, first.state(), 16, seed=5, min_step=0.0)
    for _ in range(3):
        points = first.ask()
        np.testing.assert_array_equal(points, second.ask())
        first.tell(points, distance(points))
        second.tell(points, distance(points))
    again = Evolution.resume(SPACE, one.state(), 16, seed=6, min_step=0.0)
    assert not np.array_equal(
        again.ask(), Evolution.resume(SPACE, one.state(), 16, seed=5, min_step=0.0).ask()
    )


@pytest.mark.slow
def test_a_fit_resumed_from_a_checkpoint_repeats_the_lost_trials() -> None:
    first = fit(SHORT)
    for _ in range(2):
        first.observe([outcome_of(trial) for trial in first.next_trials()])
    read = partial(read_checkpoint, first.checkpoint(), FitProgress, SPACE.size)
    asked = first.next_trials()  # whose outcomes are lost
    searched, progress = read()
    again = fit(SHORT, searched=searched, progress=progress).next_trials()
    for one, other in zip(asked, again, strict=True):
        assert (one.number, one.text) == (other.number, other.text)
        assert one.filters == other.filters
        np.testing.assert_array_equal(np.array(one.style), np.array(other.style))


def test_each_trial_of_a_generation_has_a_different_sentence() -> None:
    assert len({trial.text for trial in fit(SHORT).next_trials()}) == SHORT.generation


@pytest.mark.slow
def test_the_search_moves_away_from_styles_without_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "PREDICTED_GENERATIONS", 0)
    config = SHORT.model_copy(update={"generation": MIN_POPULATION})
    surrogate = Surrogate(prior().mixtures.observations(SPACE), own=False)
    trials = fit(config)._search.next_generation(MIN_POPULATION, range(40))
    points = np.stack([trial.point for trial in trials])

    def moved(speaks: NDArray[np.bool_]) -> float:
        search = fit(config)._search
        search._evolve(points, speaks, surrogate, np.random.default_rng(3))
        return float(search.state.centre[0])

    low = points[:, 0] <= np.median(points[:, 0])
    assert moved(low) < moved(~low)


@pytest.mark.parametrize("search", ["cma-es", "surrogate"])
def test_a_removed_search_method_is_refused_in_the_config(search: str) -> None:
    with pytest.raises(ValidationError, match="cma-es with surrogate"):
        FitConfig.model_validate(SHORT.model_dump() | {"search": search})
    assert FitConfig.model_validate(SHORT.model_dump() | {"search": "cma-es with surrogate"})
    without = SHORT.model_dump()
    del without["search"]
    assert FitConfig.model_validate(without) == SHORT


@pytest.mark.slow
def test_a_fit_runs_with_a_generation_smaller_than_the_population() -> None:
    one = fit(SHORT.model_copy(update={"generation": 3, "evaluations": 8}))
    trials = run_fit(one)
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
    assert [trial.rate for trial in trials].index(True) == 8  # the search ends after 8 evaluations
    assert all(np.isfinite(np.array(trial.style)).all() for trial in trials)
    report = one.result().report
    assert one.progress == 1 and report is not None and report.evaluations == 8
    assert len(report.similarity_curve) == 3  # generations of 3, 3 and 2 trials
