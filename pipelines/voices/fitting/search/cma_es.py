"""CMA-ES over the points of a style space: one for the timbre and one for the prosody.

Each has a mean, a covariance, paths and a step of its own. A candidate is a draw of both, and both
are told what it cost, so that what one half learns never turns or stretches the other.
"""

from collections.abc import Callable, Mapping

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors

State = Mapping[str, NDArray[np.float64]]
"""Of an evolution, by name: plain numbers that are kept in checkpoints."""

BOUND = 8.0  # of each coordinate; those of stock voices are under 4
KEPT = ("_mean", "_sigma", "_c_1d", "_p_sigma", "_pc", "_g")  # the rest follows from them


class Evolution:
    """Two populations of the same size, drawn and told together."""

    def __init__(self, halves: tuple[slice, slice], parts: tuple[CMA, CMA], seed: int) -> None:
        """For callers: `begin` and `resume`. `seed` is that of what is drawn from now on."""
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
        cls, space: StyleSpace, state: State, population: int, seed: int, least_step: float = 0.0
    ) -> "Evolution":
        """Goes on from a `state`, with no shorter steps. Raises KeyError or ValueError."""
        parts = []
        for index, half in enumerate(space.halves):
            kept = {name: state[f"{index}{name}"] for name in KEPT}
            size = half.stop - half.start
            shapes = {kept[name].shape for name in ("_mean", "_p_sigma", "_pc")}
            if shapes != {(size,)} or kept["_c_1d"].shape != (size * (size + 1) // 2,):
                raise ValueError("an evolution of another space")
            step = max(float(kept["_sigma"]), least_step)
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
        """A population, each within bounds, with what it cost."""
        for half, part in zip(self._halves, self._parts, strict=True):
            part.tell(list(zip(points[:, half], costs.tolist(), strict=True)))

    def evolve(self, costs: Callable[[Vectors], Vectors], generations: int) -> None:
        """So many generations that cost nothing to hear: [m, n] is foretold [m]."""
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


def _part(mean: Vectors, step: float, population: int) -> CMA:
    bounds = np.tile([-BOUND, BOUND], (len(mean), 1))
    return CMA(np.clip(mean, -BOUND, BOUND), step, bounds=bounds, population_size=population)
