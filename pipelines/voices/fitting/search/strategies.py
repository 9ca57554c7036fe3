"""How a search goes from one generation to the next: by CMA-ES, by a surrogate, or by both."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from configs.schema.custom_voices import SearchKind
from pipelines.voices.fitting.search.cma_es import Evolution
from pipelines.voices.fitting.search.descent import far, lowest
from pipelines.voices.fitting.search.objective import Objective
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import Surrogate

FIRST_REACH, REACH = 12.0, 2.5  # how far a generation moves at most
SPREAD = 0.25  # of the styles of a generation, where CMA-ES does not draw them
FIRST_STEP, STEP = 0.2, 0.3  # of CMA-ES: among what is known before, and among what is spoken
FIRST_FORETOLD, FORETOLD = 200, 60  # generations of CMA-ES for each that is spoken
FORETOLD_POPULATION = 16  # at least; of a smaller generation the rest is foretold only
WORSE = 1.0  # what a style that did not speak costs more than the worst that did


@dataclass(frozen=True, slots=True)
class StrategyState:
    """Where a search stands."""

    centre: Vectors  # [n]
    evolution: Mapping[str, Vectors] = field(default_factory=dict)  # empty without CMA-ES


@dataclass(frozen=True, slots=True)
class Tried:
    """One generation, as it was heard."""

    points: Vectors  # [m, n]
    sounds: Vectors  # [m, 258]
    speaks: NDArray[np.bool_]  # [m]; the sounds of others mean nothing


class SearchStrategy(Protocol):
    """Keeps nothing of its own, so that a search can go on elsewhere; blocks up to a second."""

    @property
    def one_sentence(self) -> bool:
        """Whether a generation says the same, so that its costs can be compared."""
        ...

    def start(self, known: Surrogate, near: Vectors, draw: np.random.Generator) -> StrategyState:
        """Not far from a point [n]."""
        ...

    def go_on(self, place: StrategyState) -> StrategyState:
        """From where a search stood, perhaps one that went another way."""
        ...

    def points(
        self, place: StrategyState, size: int, draw: np.random.Generator
    ) -> Iterator[Vectors]:
        """What to speak, [n] each; the first is the centre."""
        ...

    def learn(
        self,
        place: StrategyState,
        tried: Tried,
        surrogate: Callable[[], Surrogate],
        draw: np.random.Generator,
    ) -> StrategyState:
        """Where to go next. The surrogate has heard what was tried."""
        ...


def strategy_of(
    kind: SearchKind, space: StyleSpace, aim: Objective, population: int
) -> SearchStrategy:
    """A `population` is what one generation speaks, except perhaps the last."""
    if kind == "surrogate":
        return Descent(space, aim)
    if kind == "cma-es":
        return Evolving(space, aim, population, foretelling=False)
    return Evolving(space, aim, max(population, FORETOLD_POPULATION), foretelling=True)


@dataclass(frozen=True, slots=True)
class Descent:
    """Goes to the point that the surrogate foretells, and speaks what is around it."""

    space: StyleSpace
    aim: Objective
    one_sentence: bool = False

    def start(self, known: Surrogate, near: Vectors, draw: np.random.Generator) -> StrategyState:
        return StrategyState(lowest(self.space, self.aim, known, near, FIRST_REACH))

    def go_on(self, place: StrategyState) -> StrategyState:
        return StrategyState(place.centre)

    def points(
        self, place: StrategyState, size: int, draw: np.random.Generator
    ) -> Iterator[Vectors]:
        yield place.centre
        for _ in range(size - 1):
            yield place.centre + SPREAD * draw.normal(size=self.space.size)

    def learn(
        self,
        place: StrategyState,
        tried: Tried,
        surrogate: Callable[[], Surrogate],
        draw: np.random.Generator,
    ) -> StrategyState:
        return StrategyState(lowest(self.space, self.aim, surrogate(), place.centre, REACH))


@dataclass(frozen=True, slots=True)
class Evolving:
    """CMA-ES, with or without many generations that are foretold for each that is spoken."""

    space: StyleSpace
    aim: Objective
    population: int
    foretelling: bool

    @property
    def one_sentence(self) -> bool:
        return not self.foretelling

    def start(self, known: Surrogate, near: Vectors, draw: np.random.Generator) -> StrategyState:
        evolution = self._begun(near, FIRST_STEP, draw)
        evolution.evolve(self._foretold(known, near, FIRST_REACH), FIRST_FORETOLD)
        return StrategyState(evolution.mean, evolution.state())

    def go_on(self, place: StrategyState) -> StrategyState:
        any_draw = np.random.default_rng(0)
        try:
            self._resumed(place, any_draw)
        except (KeyError, ValueError):
            begun = self._begun(place.centre, STEP, any_draw)
            return StrategyState(begun.mean, begun.state())
        return place

    def points(
        self, place: StrategyState, size: int, draw: np.random.Generator
    ) -> Iterator[Vectors]:
        yield place.centre
        yield from self._resumed(place, draw).ask()[1:size]

    def learn(
        self,
        place: StrategyState,
        tried: Tried,
        surrogate: Callable[[], Surrogate],
        draw: np.random.Generator,
    ) -> StrategyState:
        evolution = self._resumed(place, draw)
        costs = self.aim.costs(tried.points, tried.sounds)
        more = evolution.ask()[len(costs) :]
        if self.foretelling:
            foretold = self._foretold(surrogate(), place.centre, REACH)
            points = np.concatenate([tried.points, more])
            evolution.tell(points, _with_silence(foretold(points), tried.speaks))
            evolution.evolve(foretold, FORETOLD)
        elif not len(more):  # the last generation may be too small to learn from
            evolution.tell(tried.points, _with_silence(costs, tried.speaks))
        return StrategyState(evolution.mean, evolution.state())

    def _foretold(
        self, surrogate: Surrogate, begin: Vectors, reach: float
    ) -> Callable[[Vectors], Vectors]:
        def costs(points: Vectors) -> Vectors:
            sounds = surrogate.sounds(self.space.style(points))
            return self.aim.costs(points, sounds) + far(points - begin, reach)

        return costs

    def _begun(self, mean: Vectors, step: float, draw: np.random.Generator) -> Evolution:
        return Evolution.begin(self.space, mean, step, self.population, _seed_of(draw))

    def _resumed(self, place: StrategyState, draw: np.random.Generator) -> Evolution:
        """What was foretold brings a population together; what is spoken shall still differ."""
        least = STEP if self.foretelling else 0.0
        return Evolution.resume(self.space, place.evolution, self.population, _seed_of(draw), least)


def _with_silence(costs: Vectors, speaks: NDArray[np.bool_]) -> Vectors:
    """The first are of styles that spoke or did not, the others of styles that are foretold."""
    made = costs.copy()
    made[: len(speaks)][~speaks] = costs.max() + WORSE
    return made


def _seed_of(draw: np.random.Generator) -> int:
    return int(draw.integers(2**31))
