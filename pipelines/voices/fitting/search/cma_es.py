"""CMA-ES over a style space, with a surrogate model that predicts most of the generations.

The covariance matrix adaptation evolution strategy of N. Hansen, "The CMA Evolution Strategy: A
Tutorial" (arXiv:1604.00772), by the library `cmaes`. Timbre and prosody have a population each,
with a mean, a covariance, paths and a step size of its own: a candidate is a draw of both, and both
are given its cost, so that what one half learns never turns or stretches the other. For each
generation that is spoken, PREDICTED_GENERATIONS more are evaluated by the surrogate alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from pipelines.voices.fitting.search.objective import Objective, distance_penalty
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import Surrogate

EvolutionState = Mapping[str, NDArray[np.float64]]
"""An evolution's numbers by name, as checkpoints keep them."""

BOUND = 8.0  # of each coordinate; those of stock voices are under 4
KEPT = ("_mean", "_sigma", "_c_1d", "_p_sigma", "_pc", "_g")  # the rest follows from them

FIRST_REACH, REACH = 12.0, 2.5  # how far a generation moves before it costs something
FIRST_STEP, STEP = 0.2, 0.3  # step sizes: among known mixtures, and among spoken styles
FIRST_PREDICTED_GENERATIONS, PREDICTED_GENERATIONS = 200, 60
MIN_POPULATION = 16  # of a smaller generation the rest is only predicted
SILENCE_COST = 1.0  # of a style without speech, above the worst that spoke


class Evolution:
    """Two populations of the same size, sampled and updated together."""

    def __init__(self, halves: tuple[slice, slice], parts: tuple[CMA, CMA], seed: int) -> None:
        """For callers: `begin` and `resume`. `seed` is that of all later samples."""
        self._halves = halves
        self._parts = parts
        for index, part in enumerate(parts):
            part.reseed_rng((seed + index) % 2**32)

    @classmethod
    def begin(
        cls, space: StyleSpace, mean: Vectors, step: float, population: int, seed: int
    ) -> "Evolution":
        timbre, prosody = (_part(mean[half], step, population) for half in space.halves)
        return cls(space.halves, (timbre, prosody), seed)

    @classmethod
    def resume(
        cls,
        space: StyleSpace,
        state: EvolutionState,
        population: int,
        seed: int,
        min_step: float = 0.0,
    ) -> "Evolution":
        """Continues from a `state`, with no shorter steps. Raises KeyError or ValueError."""
        parts = []
        for index, half in enumerate(space.halves):
            kept = {name: state[f"{index}{name}"] for name in KEPT}
            size = half.stop - half.start
            shapes = {kept[name].shape for name in ("_mean", "_p_sigma", "_pc")}
            if shapes != {(size,)} or kept["_c_1d"].shape != (size * (size + 1) // 2,):
                raise ValueError("an evolution of another space")
            step = max(float(kept["_sigma"]), min_step)
            part = _part(kept["_mean"], step, population)
            of_types = {"_sigma": step, "_g": int(kept["_g"])}
            part.__setstate__(part.__getstate__() | kept | of_types)
            parts.append(part)
        return cls(space.halves, (parts[0], parts[1]), seed)

    @property
    def population(self) -> int:
        return int(self._parts[0].population_size)

    @property
    def mean(self) -> Vectors:
        return np.concatenate([part.mean for part in self._parts])

    def ask(self) -> Vectors:
        """Candidates, [population, n]."""
        return np.array(
            [np.concatenate([part.ask() for part in self._parts]) for _ in range(self.population)]
        )

    def tell(self, points: Vectors, costs: Vectors) -> None:
        """The costs of a population whose points are within bounds."""
        for half, part in zip(self._halves, self._parts, strict=True):
            part.tell(list(zip(points[:, half], costs.tolist(), strict=True)))

    def evolve(self, costs: Callable[[Vectors], Vectors], generations: int) -> None:
        """Runs generations whose `costs` [m] are computed from points [m, n]."""
        for _ in range(generations):
            points = self.ask()
            self.tell(points, costs(points))

    def state(self) -> dict[str, NDArray[np.float64]]:
        """For `resume`; taken after `tell`."""
        return {
            f"{index}{name}": np.array(part.__getstate__()[name], np.float64)
            for index, part in enumerate(self._parts)
            for name in KEPT
        }


@dataclass(frozen=True, slots=True)
class StrategyState:
    """Where a search stands."""

    centre: Vectors  # [n]
    evolution: EvolutionState = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchStrategy:
    """Chooses the styles of each generation; stateless, blocking up to a second a call."""

    space: StyleSpace
    objective: Objective
    population: int  # of one spoken generation, except perhaps the last

    def start(self, prior: Surrogate, near: Vectors, draw: np.random.Generator) -> StrategyState:
        """Begins within FIRST_REACH of a point [n]."""
        evolution = self._begun(near, FIRST_STEP, draw)
        costs = self._predicted_costs(prior, near, FIRST_REACH)
        evolution.evolve(costs, FIRST_PREDICTED_GENERATIONS)
        return StrategyState(evolution.mean, evolution.state())

    def resume(self, state: StrategyState) -> StrategyState:
        """The same state, or a new evolution at its centre where it has none of this space."""
        any_draw = np.random.default_rng(0)
        try:
            self._resumed(state, any_draw)
        except (KeyError, ValueError):
            begun = self._begun(state.centre, STEP, any_draw)
            return StrategyState(begun.mean, begun.state())
        return state

    def points(
        self, state: StrategyState, size: int, draw: np.random.Generator
    ) -> Iterator[Vectors]:
        """The styles to speak, [n] each; the first is the centre."""
        yield state.centre
        yield from self._resumed(state, draw).ask()[1:size]

    def update(
        self,
        state: StrategyState,
        points: Vectors,
        speaks: NDArray[np.bool_],
        surrogate: Surrogate,
        draw: np.random.Generator,
    ) -> StrategyState:
        """The state after a generation [m, n], of which only those with `speaks` [m] made speech.

        `surrogate` was fitted to their sounds.
        """
        evolution = self._resumed(state, draw)
        costs = self._predicted_costs(surrogate, state.centre, REACH)
        points = np.concatenate([points, evolution.ask()[len(points) :]])
        first = costs(points)
        first[: len(speaks)][~speaks] = first.max() + SILENCE_COST
        evolution.tell(points, first)
        evolution.evolve(costs, PREDICTED_GENERATIONS)
        return StrategyState(evolution.mean, evolution.state())

    def _predicted_costs(
        self, surrogate: Surrogate, begin: Vectors, reach: float
    ) -> Callable[[Vectors], Vectors]:
        def costs(points: Vectors) -> Vectors:
            sounds = surrogate.sounds(self.space.style(points))
            return self.objective.costs(points, sounds) + distance_penalty(points - begin, reach)

        return costs

    @property
    def _size(self) -> int:
        return max(self.population, MIN_POPULATION)

    def _begun(self, mean: Vectors, step: float, draw: np.random.Generator) -> Evolution:
        return Evolution.begin(self.space, mean, step, self._size, _seed_of(draw))

    def _resumed(self, state: StrategyState, draw: np.random.Generator) -> Evolution:
        """With steps of at least STEP: predictions shrink a population that is still to differ."""
        return Evolution.resume(self.space, state.evolution, self._size, _seed_of(draw), STEP)


def _part(mean: Vectors, step: float, population: int) -> CMA:
    bounds = np.tile([-BOUND, BOUND], (len(mean), 1))
    return CMA(np.clip(mean, -BOUND, BOUND), step, bounds=bounds, population_size=population)


def _seed_of(draw: np.random.Generator) -> int:
    return int(draw.integers(2**31))
