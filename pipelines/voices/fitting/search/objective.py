"""The cost that a search minimises: unlike the speaker, off their pitch, or unlike any voice."""

from dataclasses import dataclass

import numpy as np

from models.speaker.base import EMBEDDING_SIZE
from pipelines.voices.fitting.features import pitch_statistics
from pipelines.voices.fitting.recordings import TargetSpeaker
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors

EMBEDDING = slice(0, EMBEDDING_SIZE)  # of a sound; the rest is of the pitch
PITCH_COST, RANGE_COST = 1.0, 0.3  # of a logarithm squared off the speaker's level and range
RARITY = 0.03  # cost of a style that is as unlike the stock voices as they are unlike their mean
DISTANCE_COST = 0.05  # of a step beyond its reach, times the excess squared


@dataclass(frozen=True, slots=True)
class Objective:
    """Of one speaker."""

    target: Vectors  # [256]
    pitch: Vectors  # [PITCH_STATISTICS]
    pitch_costs: Vectors  # of each of them; 0 where the speaker has none
    rarity: Vectors  # [n], of a step in each direction

    def costs(self, points: Vectors, sounds: Vectors) -> Vectors:
        """[m], of points [m, n] that sound so [m, 258]. No cost for pitch where there is none."""
        embeddings = sounds[:, EMBEDDING]
        lengths = np.maximum(np.linalg.norm(embeddings, axis=1), 1e-9)
        off = np.nan_to_num(sounds[:, EMBEDDING_SIZE:] - self.pitch)
        costs = off**2 @ self.pitch_costs + points**2 @ self.rarity
        return np.asarray(costs - embeddings @ self.target / lengths)


def objective_for(speaker: TargetSpeaker, space: StyleSpace) -> Objective:
    pitch = np.array(pitch_statistics(speaker.pitches))
    return Objective(
        target=speaker.embedding.astype(np.float64),
        pitch=np.nan_to_num(pitch),
        pitch_costs=np.where(np.isnan(pitch), 0.0, (PITCH_COST, RANGE_COST)),
        rarity=RARITY / space.size * space.rarity,
    )


def distance_penalty(steps: Vectors, reach: float) -> Vectors:
    """The cost [m] of steps [m, n] that go beyond their reach."""
    excess = np.maximum(0.0, np.linalg.norm(steps, axis=1) - reach)
    return np.asarray(DISTANCE_COST * excess**2)
