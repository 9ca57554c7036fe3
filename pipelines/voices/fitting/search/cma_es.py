"""CMA-ES over a style space: a population for the timbre and one for the prosody.

The covariance matrix adaptation evolution strategy of N. Hansen, "The CMA Evolution Strategy: A
Tutorial" (arXiv:1604.00772), by the library `cmaes`. A candidate is a draw from both populations,
and both get its cost, so that the adaptation of one half does not rotate or scale the other."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors

EvolutionState = Mapping[str, NDArray[np.float64]]
"""The state of an evolution by name, as checkpoints store it."""

BOUND = 8.0  # limit of each coordinate; those of stock voices are under 4
KEPT = ("_mean", "_sigma", "_c_1d", "_p_sigma", "_pc", "_g")  # the other values follow from them


class Evolution:
    """Two populations of the same size, sampled and updated together."""

    def __init__(self, space: StyleSpace, parts: Sequence[CMA], seed: int) -> None:
        """Create an evolution, as `begin` and `resume` do; `seed` is that of later samples."""
        self._halves = space.halves
        self._parts = parts
        for index, part in enumerate(parts):
            part.reseed_rng((seed + index) % 2**32)

    @classmethod
    def begin(
        cls, space: StyleSpace, mean: Vectors, step: float, population: int, seed: int
    ) -> "Evolution":
        return cls(space, [_part(mean[half], step, population) for half in space.halves], seed)

    @classmethod
    def resume(
        cls, space: StyleSpace, state: EvolutionState, population: int, seed: int, min_step: float
    ) -> "Evolution":
        """Continue from a `state` in the same space, with no shorter steps."""
        parts = []
        for index in range(len(space.halves)):
            kept = {name: state[f"{index}{name}"] for name in KEPT}
            step = max(float(kept["_sigma"]), min_step)
            part = _part(kept["_mean"], step, population)
            of_types = {"_sigma": step, "_g": int(kept["_g"])}
            part.__setstate__(part.__getstate__() | kept | of_types)
            parts.append(part)
        return cls(space, parts, seed)

    @property
    def mean(self) -> Vectors:
        return np.concatenate([part.mean for part in self._parts])

    def ask(self) -> Vectors:
        """Return candidates, [population, n]."""
        population = self._parts[0].population_size
        return np.array(
            [np.concatenate([part.ask() for part in self._parts]) for _ in range(population)]
        )

    def tell(self, points: Vectors, costs: Vectors) -> None:
        """Learn the costs of a population whose points are within bounds."""
        for half, part in zip(self._halves, self._parts, strict=True):
            part.tell(list(zip(points[:, half], costs.tolist(), strict=True)))

    def evolve(self, costs: Callable[[Vectors], Vectors], generations: int) -> None:
        """Run generations whose `costs` [m] are computed from points [m, n]."""
        for _ in range(generations):
            points = self.ask()
            self.tell(points, costs(points))

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Return the state for `resume`; call it after `tell`."""
        return {
            f"{index}{name}": np.array(part.__getstate__()[name], np.float64)
            for index, part in enumerate(self._parts)
            for name in KEPT
        }


def _part(mean: Vectors, step: float, population: int) -> CMA:
    bounds = np.tile([-BOUND, BOUND], (len(mean), 1))
    return CMA(np.clip(mean, -BOUND, BOUND), step, bounds=bounds, population_size=population)
