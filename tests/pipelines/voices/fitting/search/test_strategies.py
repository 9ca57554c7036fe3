"""How searches go from generation to generation: by CMA-ES, by a surrogate, or by both."""

from functools import partial

import numpy as np
import pytest
from pydantic import ValidationError

from configs.schema.custom_voices import FitConfig, SearchKind
from pipelines.voices.fitting.checkpoint import read_checkpoint
from pipelines.voices.fitting.fit import FitProgress, FittedVoice
from pipelines.voices.fitting.search.cma_es import BOUND, Evolution
from pipelines.voices.fitting.search.objective import objective_for
from pipelines.voices.fitting.search.strategies import Tried, strategy_of
from pipelines.voices.fitting.search.style_space import HALF, Vectors
from pipelines.voices.fitting.search.surrogate import Surrogate
from tests.pipelines.voices.fitting.test_fit import SHORT, made
from tests.pipelines.voices.fitting.world import fit, knowledge, outcome_of, speaker

SPACE = knowledge().space
KINDS: list[SearchKind] = ["cma-es", "surrogate", "cma-es with surrogate"]


def evolution(population: int = 16, seed: int = 1) -> Evolution:
    return Evolution.begin(SPACE, np.zeros(SPACE.size), 0.3, population, seed)


def distance(points: Vectors) -> Vectors:
    """From a point whose prosody does not matter."""
    return np.asarray(np.square(points[:, SPACE.halves[0]] - 1.0).sum(axis=1))


def test_the_halves_of_a_space_are_timbre_and_prosody() -> None:
    timbre, prosody = SPACE.halves
    assert timbre.stop == prosody.start and prosody.stop == SPACE.size
    assert not SPACE.directions[timbre, HALF:].any()
    assert not SPACE.directions[prosody, :HALF].any()


def test_an_evolution_finds_what_costs_least() -> None:
    one = evolution()
    one.evolve(distance, 120)
    assert distance(one.mean[None])[0] < 0.01


def test_each_half_learns_nothing_of_the_other() -> None:
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


def test_an_evolution_goes_on_as_if_it_had_never_stopped() -> None:
    one = evolution()
    one.evolve(distance, 7)
    first = Evolution.resume(SPACE, one.state(), 16, seed=5)
    second = Evolution.resume(SPACE, first.state(), 16, seed=5)
    for _ in range(3):
        points = first.ask()
        np.testing.assert_array_equal(points, second.ask())
        first.tell(points, distance(points))
        second.tell(points, distance(points))
    again = Evolution.resume(SPACE, one.state(), 16, seed=6)
    assert not np.array_equal(again.ask(), Evolution.resume(SPACE, one.state(), 16, seed=5).ask())


def test_an_evolution_of_another_space_is_refused() -> None:
    state = evolution().state()
    with pytest.raises(ValueError, match="another space"):
        Evolution.resume(SPACE, {**state, "1_mean": np.zeros(3)}, 16, seed=1)
    with pytest.raises(KeyError):
        Evolution.resume(SPACE, {}, 16, seed=1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_finds_a_voice(kind: SearchKind) -> None:
    one = fit(SHORT.model_copy(update={"search": kind}))
    made(one)
    voice = one.result()
    assert isinstance(voice, FittedVoice)
    assert voice.similarity > voice.report["judged"]["stock_similarity"] + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_asked_after_a_fit_was_killed(kind: SearchKind) -> None:
    config = SHORT.model_copy(update={"search": kind})
    first = fit(config)
    for _ in range(2):
        first.tell([outcome_of(trial) for trial in first.ask()])
    read = partial(read_checkpoint, first.state(), FitProgress, SPACE.size)
    asked = first.ask()  # and its outcomes are lost
    searched, progress = read()
    again = fit(config, searched=searched, progress=progress).ask()
    for one, other in zip(asked, again, strict=True):
        assert (one.number, one.text) == (other.number, other.text)
        assert one.filters == other.filters
        np.testing.assert_array_equal(np.array(one.style), np.array(other.style))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_went_another_way_goes_on(kind: SearchKind) -> None:
    for other in KINDS:
        first = fit(SHORT.model_copy(update={"search": other}))
        first.tell([outcome_of(trial) for trial in first.ask()])
        searched, progress = read_checkpoint(first.state(), FitProgress, SPACE.size)
        second = fit(
            SHORT.model_copy(update={"search": kind}), searched=searched, progress=progress
        )
        assert np.array(second.ask()[0].style) == pytest.approx(
            np.array(first.ask()[0].style), abs=1e-6
        )
        second.tell([outcome_of(trial) for trial in second.ask()])


def test_only_a_population_alone_says_the_same_sentence() -> None:
    said = {
        kind: {trial.text for trial in fit(SHORT.model_copy(update={"search": kind})).ask()}
        for kind in KINDS
    }
    assert len(said["cma-es"]) == 1
    assert len(said["cma-es with surrogate"]) == len(said["surrogate"]) == SHORT.generation


def test_a_population_moves_away_from_styles_that_do_not_speak() -> None:
    aim = objective_for(speaker(), SPACE)
    way = strategy_of("cma-es", SPACE, aim, 12)
    known = Surrogate(knowledge().prior.heard(SPACE), own=False)
    place = way.start(known, np.zeros(SPACE.size), np.random.default_rng(1))
    points = np.stack(list(way.points(place, 12, np.random.default_rng(2))))
    speaks = points[:, 0] <= np.median(points[:, 0])
    alike = np.tile(np.append(aim.target, aim.pitch), (12, 1))
    tried = Tried(points, alike, speaks)
    moved = way.learn(place, tried, lambda: known, np.random.default_rng(3))
    assert moved.centre[0] < place.centre[0]


def test_a_population_that_is_too_small_to_evolve_is_refused() -> None:
    small = SHORT.model_dump() | {"generation": 3}
    FitConfig.model_validate(small | {"search": "cma-es with surrogate"})
    with pytest.raises(ValidationError, match="at least 4"):
        FitConfig.model_validate(small | {"search": "cma-es"})
    FitConfig.model_validate(small | {"search": "cma-es", "generation": 4})
    made(fit(SHORT.model_copy(update={"search": "cma-es", "generation": 4, "evaluations": 10})))
