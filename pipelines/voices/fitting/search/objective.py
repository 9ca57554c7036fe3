"""What a search wants: to sound like the speaker, at their pitch, not unlike any voice there is."""

from dataclasses import dataclass

import numpy as np

from models.speaker.base import EMBEDDING_SIZE
from pipelines.voices.fitting.features import pitch_marks
from pipelines.voices.fitting.recordings import TargetSpeaker
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import likeness

EMBEDDING = slice(0, EMBEDDING_SIZE)  # of a sound; the rest is of the pitch
PITCH_COST, RANGE_COST = 1.0, 0.3  # of a logarithm squared off the speaker's level and range
RARITY = 0.03  # what a style costs that is as unlike the stock voices as they are unlike their mean


@dataclass(frozen=True, slots=True)
class Objective:
    """Of one speaker."""

    target: Vectors  # [256]
    pitch: Vectors  # MARKS
    pitch_costs: Vectors  # of each of them; 0 where the speaker has none
    rarity: Vectors  # [n], of a step in each direction

    def cost(self, point: Vectors, sound: Vectors) -> tuple[float, Vectors, Vectors]:
        """Of a point [n] that sounds so [258], and its slopes in both."""
        cosine, slope = likeness(sound[EMBEDDING], self.target)
        off = sound[EMBEDDING_SIZE:] - self.pitch
        rare = self.rarity * point
        value = float(self.pitch_costs @ off**2 + rare @ point) - cosine
        return value, 2 * rare, np.concatenate([-slope, 2 * self.pitch_costs * off])

    def costs(self, points: Vectors, sounds: Vectors) -> Vectors:
        """The same of many, [m]. What has no pitch costs nothing for it."""
        embeddings = sounds[:, EMBEDDING]
        lengths = np.maximum(np.linalg.norm(embeddings, axis=1), 1e-9)
        off = np.nan_to_num(sounds[:, EMBEDDING_SIZE:] - self.pitch)
        costs = off**2 @ self.pitch_costs + points**2 @ self.rarity
        return np.asarray(costs - embeddings @ self.target / lengths)


def objective_for(speaker: TargetSpeaker, space: StyleSpace) -> Objective:
    marks = np.array(pitch_marks(speaker.pitches))
    return Objective(
        target=speaker.embedding.astype(np.float64),
        pitch=np.nan_to_num(marks),
        pitch_costs=np.where(np.isnan(marks), 0.0, (PITCH_COST, RANGE_COST)),
        rarity=RARITY / space.size * space.rarity,
    )
