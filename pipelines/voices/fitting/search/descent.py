"""The point that a surrogate foretells to be best, by its slopes."""

from typing import Any

import numpy as np
from scipy.optimize import minimize

from pipelines.voices.fitting.search.objective import Objective
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import Surrogate

FAR = 0.05  # what it costs to go beyond the reach, by the distance squared
MOST_STEPS = 100


def far(steps: Vectors, reach: float) -> Vectors:
    """What steps [m, n] cost that go beyond their reach."""
    beyond = np.maximum(0.0, np.linalg.norm(steps, axis=1) - reach)
    return np.asarray(FAR * beyond**2)


def lowest(
    space: StyleSpace, aim: Objective, surrogate: Surrogate, begin: Vectors, reach: float
) -> Vectors:
    """Not far from `begin`."""

    def cost(step: Any) -> tuple[float, Any]:
        point = begin + step
        foretold, slope_of = surrogate.sound(space.style(point))
        value, rare, better = aim.cost(point, foretold)
        length = max(float(np.linalg.norm(step)), 1e-9)
        pull = 2 * FAR * max(0.0, length - reach) * step / length
        return value + float(far(step[None], reach)[0]), rare + pull + space.directions @ slope_of(
            better
        )

    found = minimize(
        cost, np.zeros(space.size), jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS}
    )
    return np.asarray(begin + found.x)
