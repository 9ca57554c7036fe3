"""Whether a voice gains by formants that are higher or lower than its style makes them.

The styles of the engine are of adults. A child, or somebody much larger than most, can be beyond
what any of them says, and then a warp of the envelope adds what is missing.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from models.speaker.windows import mean_embedding
from pipelines.voices.fitting.selection import Candidate, SelectionResult
from pipelines.voices.fitting.trials import Outcome, Target

WARPS = (1.0, 0.85, 0.9, 0.94, 0.97, 1.03, 1.06, 1.1, 1.15, 1.2)  # the first is none
WORTH = 0.005  # of likeness, else a voice has none: less is within what sentences differ by
QUALITY_SLACK = 0.05  # of an opinion score that a warp may cost


def warped(plain: Candidate, outcomes: Sequence[Outcome], target: Target) -> Candidate | None:
    """The voice with the best of WARPS, of sentences that were heard through all of them.

    None where it is not worth it.
    """
    spoken = [one for one in outcomes if one.duration_s > 0]
    if not spoken:
        return None
    heard = np.stack([one.embeddings for one in spoken], axis=1)  # [warps, sentences, 256]
    likeness = np.array([mean_embedding(one) @ target.embedding for one in heard])
    best = int(likeness.argmax())
    if likeness[best] < likeness[0] + WORTH:
        return None
    undone = np.mean([one.undone[best] for one in spoken], axis=0)
    return replace(
        plain,
        name=f"{plain.name}, formants {WARPS[best]:g}",
        bands=tuple((np.array(plain.bands) + undone).tolist()),
        warp=WARPS[best],
    )


def better(
    warped: SelectionResult, plain: SelectionResult, stock: SelectionResult, min_quality: float
) -> bool:
    """Whether the warp stays, of both voices with the same sentences."""
    if (warped.quality or 0.0) < (plain.quality or 0.0) - QUALITY_SLACK:
        return False
    return warped.score(stock, min_quality) >= plain.score(stock, min_quality) + WORTH
